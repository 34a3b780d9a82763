package cache

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
)

// versionServer is an API server that returns its version.
type versionServer struct {
	response atomic.Pointer[string]
	requests atomic.Int64
}

// RoundTrip responds without a network, so that a test may use a fake clock. No response means that the API server is
// down.
func (v *versionServer) RoundTrip(r *http.Request) (*http.Response, error) {
	v.requests.Add(1)
	recorder := httptest.NewRecorder()
	if response := v.response.Load(); r.URL.Path != "/version" || response == nil {
		http.Error(recorder, "bad gateway", http.StatusBadGateway)
	} else {
		recorder.Header().Set("Content-Type", "application/json")
		_, _ = recorder.WriteString(*response)
	}
	return recorder.Result(), nil
}

func (v *versionServer) set(response string) { v.response.Store(&response) }

func TestFollowVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server, log := newFakeCluster(t), &versionServer{}, &logs.Log{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		config, logger := &rest.Config{Host: "https://api.example", Transport: server}, log.Logger()
		go func() { ended <- c.FollowVersion(ctx, config, logger) }()

		for _, step := range []struct {
			response string
			wait     time.Duration
			want     string
		}{
			{response: "", wait: 10 * time.Second, want: "<nil>"},
			{response: `{"gitVersion": "v1.33.4-gke.1234567"}`, wait: 2 * time.Second, want: "1.33.4"},
			{response: `{"gitVersion": "v1.36.3", "emulationMajor": "1", "emulationMinor": "33"}`, wait: 2 * time.Minute, want: "1.33"},
			{response: `{"gitVersion": "v1.34.0+k3s1"}`, wait: 2 * time.Minute, want: "1.34.0"},
			{response: `{"gitVersion": "invalid"}`, wait: 10 * time.Minute, want: "1.34.0"},
			{response: `[]`, wait: 10 * time.Minute, want: "1.34.0"},
			{response: `{"gitVersion": "v1.35.1"}`, wait: 2 * time.Minute, want: "1.35.1"},
		} {
			if step.response != "" {
				server.set(step.response)
			}
			time.Sleep(step.wait)
			synctest.Wait()
			if got := c.Version().String(); got != step.want {
				t.Errorf("after %q the version is %s, want %s", step.response, got, step.want)
			}
		}
		if requests := server.requests.Load(); requests < 20 || requests > 60 {
			t.Errorf("%d requests in half an hour", requests)
		}
		if count := strings.Count(log.String(), "failed to get the version"); count != 3 {
			t.Errorf("%d log lines about failed requests, want one for each reason:\n%s", count, log)
		}
		for _, known := range []string{"until it is known", "known=1.34.0"} {
			if !strings.Contains(log.String(), known) {
				t.Errorf("the log lacks %q:\n%s", known, log)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("FollowVersion() = %v", err)
		}
	})
}
