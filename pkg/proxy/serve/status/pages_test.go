package status

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// example returns the pages of a proxy that has run for a little over a day.
func example(profiling bool, logged func(error)) Pages {
	began := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	return Pages{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", plainText)
			_, _ = io.WriteString(w, "counted 1\n")
		}),
		Mode: "nftables",
		Config: func() map[string]any {
			return map[string]any{"kubeproxy.config.k8s.io": map[string]string{"kind": "KubeProxyConfiguration"}}
		},
		Findings:  func(query url.Values) any { return append([]string{"a part of web.yaml"}, query["code"]...) },
		Flags:     map[string]string{"v": "2", "config": "/var/lib/config.yaml"},
		Build:     Build{Name: "vicinity", Version: "v1.2.3", GoVersion: "go1.26.0"},
		StartedAt: began,
		Now:       func() time.Time { return began.Add(26*time.Hour + 3*time.Minute + 9*time.Second) },
		OnError:   logged,
		Profiling: profiling,

		WithFlags:  true,
		WithStatus: true,
	}
}

const (
	flagzPage = `
vicinity flagz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

config=/var/lib/config.yaml
v=2
`
	statuszPage = `
vicinity statusz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

Started: Sun Mar  1 12:00:00 UTC 2026
Up: 26 hr 03 min 09 sec
Go version: go1.26.0
Binary version: v1.2.3
Paths: /configz /findings /flagz /healthz /metrics /proxyMode /statusz /summary
`
	plainText = "text/plain; charset=utf-8"
)

func TestEachPageHasTheExpectedContent(t *testing.T) {
	for path, want := range map[string]struct{ contentType, body string }{
		"/metrics":      {plainText, "counted 1\n"},
		"/healthz":      {plainText, "ok"},
		"/healthz/ping": {plainText, "ok"},
		"/proxyMode":    {plainText, "nftables"},
		"/configz":      {"application/json", `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`},
		"/findings":     {"application/json", `["a part of web.yaml"]`},
		"/flagz":        {plainText, flagzPage},
		"/statusz":      {plainText, statuszPage},

		"/findings?code=Invalid": {"application/json", `["a part of web.yaml","Invalid"]`},
	} {
		t.Run(path, func(t *testing.T) {
			response := getPage(example(false, failing(t)), http.MethodGet, path)
			if response.Code != http.StatusOK {
				t.Errorf("status %d", response.Code)
			}
			if diff := cmp.Diff(want.body, response.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if got := response.Header().Get("Content-Type"); got != want.contentType {
				t.Errorf("content type %q, want %q", got, want.contentType)
			}
			if got := response.Header().Get("X-Content-Type-Options"); path != "/metrics" && got != "nosniff" {
				t.Errorf("content type options %q", got)
			}
		})
	}
}

func TestThereIsNoOtherPathOrMethod(t *testing.T) {
	for name, test := range map[string]struct {
		method, path string
		want         int
	}{
		"the root":                  {http.MethodGet, "/", http.StatusNotFound},
		"a path below health":       {http.MethodGet, "/healthz/else", http.StatusNotFound},
		"health has its own server": {http.MethodGet, "/livez", http.StatusNotFound},
		"PUT is not found":          {http.MethodPut, "/debug/flags/v", http.StatusNotFound},
		"POST is not allowed":       {http.MethodPost, "/configz", http.StatusMethodNotAllowed},
		"HEAD is allowed":           {http.MethodHead, "/proxyMode", http.StatusOK},
		"profiles are disabled":     {http.MethodGet, "/debug/pprof/", http.StatusNotFound},
		"a profile is disabled":     {http.MethodGet, "/debug/pprof/heap", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if response := getPage(example(false, failing(t)), test.method, test.path); response.Code != test.want {
				t.Errorf("status %d, want %d", response.Code, test.want)
			}
		})
	}
}

func TestProfilesAreServedIfRequested(t *testing.T) {
	pages := example(true, failing(t))
	for _, name := range []string{"", "heap", "goroutine", "cmdline", "symbol"} {
		path := "/debug/pprof/" + name
		if response := getPage(pages, http.MethodGet, path); response.Code != http.StatusOK || response.Body.Len() == 0 {
			t.Errorf("%s: status %d and %d bytes", path, response.Code, response.Body.Len())
		}
	}
	if response := getPage(pages, http.MethodGet, "/statusz"); !strings.Contains(response.Body.String(), "/debug/pprof") {
		t.Errorf("/statusz does not name the profiles: %s", response.Body)
	}
}

// deadlineWriter is a response writer with a write deadline.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (d *deadlineWriter) SetWriteDeadline(at time.Time) error {
	d.deadline = at
	return nil
}

// TestProfileExtendsWriteDeadline: the server limits the duration of a response, and a profile's duration is added to
// that limit.
func TestProfileExtendsWriteDeadline(t *testing.T) {
	server := &http.Server{WriteTimeout: time.Hour}
	started := time.Now()
	response := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	request := httptest.NewRequest(http.MethodGet, "/debug/pprof/profile?seconds=1", nil)
	request = request.WithContext(context.WithValue(t.Context(), http.ServerContextKey, server))
	example(true, failing(t)).Handler().ServeHTTP(response, request)
	if response.Code != http.StatusOK || response.Body.Len() == 0 {
		t.Errorf("status %d and %d bytes", response.Code, response.Body.Len())
	}
	if got := response.deadline.Sub(started); got < time.Hour+time.Second {
		t.Errorf("write deadline after %s, want an hour and the second that the profile takes", got)
	}
}

func TestEncodingErrorIsLoggedAndNotShown(t *testing.T) {
	var logged error
	pages := example(false, func(err error) { logged = err })
	pages.Config = func() map[string]any { return map[string]any{"secret": math.Inf(1)} }
	response := getPage(pages, http.MethodGet, "/configz")
	if response.Code != http.StatusInternalServerError || strings.Contains(response.Body.String(), "secret") {
		t.Errorf("status %d: %s", response.Code, response.Body)
	}
	if logged == nil || !strings.HasPrefix(logged.Error(), "/configz: encode the page: ") {
		t.Errorf("logged %v", logged)
	}
}

func getPage(pages Pages, method, path string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	pages.Handler().ServeHTTP(response, httptest.NewRequest(method, path, nil))
	return response
}

// failing returns an error callback that fails the test.
func failing(t *testing.T) func(error) {
	return func(err error) { t.Error(errors.Join(errors.New("logged"), err)) }
}
