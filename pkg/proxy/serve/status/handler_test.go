package status

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// reply is the response to one request.
type reply struct {
	code   int
	header http.Header
	body   string
}

// request serves a status at a given time on a real socket, and returns the reply to one request.
func request(t *testing.T, status *Status, now time.Time, method, path string) reply {
	t.Helper()
	server := httptest.NewServer(status.Handler(func() time.Time { return now }))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, string(body)}
}

func syncedStatus() *Status {
	var status Status
	status.SetNodeEligibility(true, "")
	status.SyncQueued(second(0))
	status.SyncSucceeded(second(1))
	return &status
}

func notEligibleStatus() *Status {
	status := syncedStatus()
	status.SetNodeEligibility(false, "the Node is being deleted")
	return status
}

func interruptedStatus() *Status {
	status := syncedStatus()
	status.WatchInterrupted("services", second(5), "connection refused")
	return status
}

func stuckStatus() *Status {
	status := syncedStatus()
	status.SyncQueued(second(10))
	status.SyncFailed(second(40), errBusy)
	return status
}

// livezBody is the page of /livez two minutes after the start, with more fields before the last one.
func livezBody(updated, healthy, more string) string {
	return strings.NewReplacer("UPDATED", updated, "HEALTHY", healthy, "MORE", more).Replace(`{
  "lastUpdated": "2026-03-01T12:UPDATEDZ",
  "currentTime": "2026-03-01T12:02:00Z",
  "healthy": HEALTHY,
  "status": {
    "IPv4": {
      "lastUpdated": "2026-03-01T12:00:01Z",
      "healthy": HEALTHY
    },
    "IPv6": {
      "lastUpdated": "2026-03-01T12:00:01Z",
      "healthy": HEALTHY
    }
  },
MORE  "refusedTotal": 0
}
`)
}

var (
	aliveBody       = livezBody("02:00", "true", "")
	interruptedBody = livezBody("02:00", "true", `  "interruptions": [
    {
      "resource": "services",
      "since": "2026-03-01T12:00:05Z",
      "reason": "connection refused"
    }
  ],
`)
	// notEligibleBody is the page for load balancers if the proxy is healthy and the node is not eligible: its lastUpdated
	// is the time of the last sync.
	notEligibleBody = withEligibility(livezBody("00:01", "true", "  \"notEligible\": \"the Node is being deleted\",\n"), "false")
	stuckBody       = livezBody("00:01", "false", `  "pendingSince": "2026-03-01T12:00:10Z",
  "lastFailure": "2026-03-01T12:00:40Z",
  "lastError": "committing 3 changes: device or resource busy",
`)
)

// withEligibility adds nodeEligible to a page of /livez, as in /healthz.
func withEligibility(page, value string) string {
	return strings.Replace(page, "  \"healthy\"", "  \"nodeEligible\": "+value+",\n  \"healthy\"", 1)
}

const readyBody = `{
  "ready": true,
  "message": "The first sync is in the kernel."
}
`

const notReadyBody = `{
  "ready": false,
  "message": "The first sync has not reached the kernel yet; waiting for the complete state of the cluster."
}
`

func TestHandler(t *testing.T) {
	for name, c := range map[string]struct {
		status       *Status
		method, path string
		code         int
		body         string
	}{
		"a healthy proxy, to a load balancer": {syncedStatus(), http.MethodGet, "/healthz", http.StatusOK, withEligibility(aliveBody, "true")},
		"a healthy proxy, to a kubelet":       {syncedStatus(), http.MethodGet, "/livez", http.StatusOK, aliveBody},
		"a node that is being deleted, to a load balancer": {notEligibleStatus(), http.MethodGet, "/healthz",
			http.StatusServiceUnavailable, notEligibleBody},
		"a node that is being deleted, to a kubelet": {notEligibleStatus(), http.MethodGet, "/livez", http.StatusOK, aliveBody},
		"a node that is being deleted stays ready":   {notEligibleStatus(), http.MethodGet, "/readyz", http.StatusOK, readyBody},
		"an interrupted watch, to a kubelet":         {interruptedStatus(), http.MethodGet, "/livez", http.StatusOK, interruptedBody},
		"a stuck proxy, to a load balancer": {
			stuckStatus(), http.MethodGet, "/healthz", http.StatusServiceUnavailable, withEligibility(stuckBody, "true"),
		},
		"a stuck proxy, to a kubelet":              {stuckStatus(), http.MethodGet, "/livez", http.StatusServiceUnavailable, stuckBody},
		"a stuck proxy stays ready":                {stuckStatus(), http.MethodGet, "/readyz", http.StatusOK, readyBody},
		"a proxy that has synced is ready":         {syncedStatus(), http.MethodGet, "/readyz", http.StatusOK, readyBody},
		"a proxy that has not synced is not ready": {&Status{}, http.MethodGet, "/readyz", http.StatusServiceUnavailable, notReadyBody},
		"HEAD has the status and no body":          {syncedStatus(), http.MethodHead, "/healthz", http.StatusOK, ""},
		"HEAD of a stuck proxy":                    {stuckStatus(), http.MethodHead, "/livez", http.StatusServiceUnavailable, ""},
		"HEAD of a proxy that is not ready":        {&Status{}, http.MethodHead, "/readyz", http.StatusServiceUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := request(t, c.status, second(120), c.method, c.path)
			headers := []string{got.header.Get("Content-Type"), got.header.Get("X-Content-Type-Options")}
			if diff := cmp.Diff([]any{c.code, c.body, []string{"application/json", "nosniff"}}, []any{got.code, got.body, headers}); diff != "" {
				t.Errorf("status, body, headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachResponseIsReportedWithItsPathAndStatus(t *testing.T) {
	status := notEligibleStatus()
	var responses []string
	status.OnResponse = func(path string, code int) { responses = append(responses, fmt.Sprintf("%s %d", path, code)) }
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/elsewhere"} {
		request(t, status, second(2), http.MethodGet, path)
	}
	if diff := cmp.Diff([]string{"/healthz 503", "/livez 200", "/readyz 200"}, responses); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
}

func TestHandlerHasNoOtherPathOrMethod(t *testing.T) {
	for name, c := range map[string]struct {
		method, path string
		code         int
	}{
		"the root is not found":         {http.MethodGet, "/", http.StatusNotFound},
		"a path below is not found":     {http.MethodGet, "/healthz/ping", http.StatusNotFound},
		"metrics are not served here":   {http.MethodGet, "/metrics", http.StatusNotFound},
		"nothing can be posted":         {http.MethodPost, "/healthz", http.StatusMethodNotAllowed},
		"a trailing slash is not found": {http.MethodGet, "/readyz/", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if got := request(t, syncedStatus(), second(2), c.method, c.path); got.code != c.code {
				t.Errorf("status %d, want %d", got.code, c.code)
			}
		})
	}
}

// TestAPageReportsHowManyObjectsAreInvalid: the page does not name the objects, because the health address is
// accessible to anyone.
func TestAPageReportsHowManyObjectsAreInvalid(t *testing.T) {
	status := syncedStatus()
	status.SetInvalidObjects(1000)
	got := request(t, status, second(2), http.MethodGet, "/healthz")
	if got.code != http.StatusOK {
		t.Errorf("with invalid objects: status %d, want 200", got.code)
	}
	var page map[string]any
	if err := json.Unmarshal([]byte(got.body), &page); err != nil {
		t.Fatal(err)
	}
	if page["refusedTotal"] != 1000.0 || page["refused"] != nil {
		t.Errorf("page %s, want only the number of invalid objects", got.body)
	}
}
