package cache

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
)

// leaseServer is an API server that has one Lease or none, or is down.
type leaseServer struct {
	status   atomic.Int64 // of the response
	lease    atomic.Pointer[coordinationv1.Lease]
	requests atomic.Int64
}

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/vicinity-system/leases/vicinity-demand"

// RoundTrip responds without a network, so that a test may use a fake clock.
func (l *leaseServer) RoundTrip(r *http.Request) (*http.Response, error) {
	l.requests.Add(1)
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	var response any = l.lease.Load()
	status := int(l.status.Load())
	if r.Method != http.MethodGet || r.URL.Path != leasePath {
		status = http.StatusTeapot
	}
	if recorder.WriteHeader(status); status != http.StatusOK {
		reason := map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound}[status]
		response = &metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Reason: reason, Message: http.StatusText(status)}
	}
	err := json.NewEncoder(recorder).Encode(response)
	return recorder.Result(), err
}

func TestFollowDemandReadsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server, log := newFakeCluster(t), &leaseServer{}, &logs.Log{}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		config, logger := &rest.Config{Host: "https://api.example", Transport: server}, log.Logger()
		server.status.Store(http.StatusBadGateway)
		go func() { ended <- c.FollowDemand(ctx, config, "vicinity-system", logger) }()

		for _, step := range []struct {
			title    string
			status   int
			renewed  bool // just now
			wait     time.Duration
			noDemand bool
		}{
			{"the API server is down", http.StatusBadGateway, false, 5 * time.Minute, false},
			{"there is no Lease", http.StatusNotFound, false, 2 * time.Minute, true},
			{"the API server is down again", http.StatusBadGateway, false, 5 * time.Minute, true},
			{"a Lease that was never renewed", http.StatusOK, false, 2 * time.Minute, true},
			{"a renewed Lease", http.StatusOK, true, 2 * time.Minute, false},
			{"the API server is down after that", http.StatusBadGateway, true, 2 * v1alpha1.DemandFreshFor, false},
			{"the Lease was not renewed", http.StatusOK, false, 2 * time.Minute, true},
			{"the Lease is renewed", http.StatusOK, true, v1alpha1.DemandFreshFor - 2*time.Minute, false},
			{"the renewal expired", http.StatusOK, false, 4 * time.Minute, true},
			{"reading is forbidden", http.StatusForbidden, false, 5 * time.Minute, true},
		} {
			if server.lease.Load() == nil {
				server.lease.Store(&coordinationv1.Lease{})
			}
			if step.renewed {
				server.lease.Store(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())}})
			}
			server.status.Store(int64(step.status))
			time.Sleep(step.wait)
			synctest.Wait()
			if got := c.HasNoDemandPublisher(); got != step.noDemand {
				t.Errorf("%s: HasNoDemandPublisher() = %v", step.title, got)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("FollowDemand() = %v", err)
		}
		minutes := 5 + 2 + 5 + 2 + 2 + 120 + 2 + 58 + 4 + 5
		if requests := server.requests.Load(); requests < int64(minutes) || requests > int64(minutes)+1 {
			t.Errorf("%d requests in %d minutes", requests, minutes)
		}
		if count := strings.Count(log.String(), "failed to read the demand Lease"); count != 4 {
			t.Errorf("%d log lines about failed reads, want one for each outage:\n%s", count, log)
		}
	})
}
