package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// traffic records a client's requests to the API server, and may hold them back.
type traffic struct {
	mu       sync.Mutex
	requests []*http.Request
	// rejected are the requests with a response other than 200.
	rejected []*http.Request
	gates    map[string]chan struct{} // requests whose URL contains the key wait until the channel is closed
	absent   string                   // requests whose path ends in this get a 404 for an unknown resource
	field    string                   // requests that select by this field get the response of an API server without it
}

// record makes the configuration's requests pass through tr.
func (tr *traffic) record(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return trafficTransport{tr, next} })
	return config
}

// trafficTransport is a RoundTripper.
type trafficTransport struct {
	*traffic
	next http.RoundTripper
}

func (r trafficTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	original := request
	r.mu.Lock()
	r.requests = append(r.requests, original)
	var gate chan struct{}
	for substring, closed := range r.gates {
		if strings.Contains(request.URL.String(), substring) {
			gate = closed
		}
	}
	absent := r.absent != "" && strings.HasSuffix(request.URL.Path, r.absent)
	r.mu.Unlock()
	if r.field != "" && strings.Contains(request.URL.RawQuery, r.field) {
		request = request.Clone(request.Context())
		request.URL.RawQuery = strings.Replace(request.URL.RawQuery, r.field, "spec.nosuchfield", 1)
	}
	if absent {
		request = request.Clone(request.Context())
		request.URL.Path = strings.Replace(request.URL.Path, r.absent, "/nosuchthing", 1)
	}
	if gate != nil {
		select {
		case <-gate:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	response, err := r.next.RoundTrip(request)
	if err == nil && response.StatusCode != http.StatusOK {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rejected = append(r.rejected, original)
	}
	return response, err
}

// gate makes requests whose URL contains substring wait until open is called.
func (tr *traffic) gate(t *testing.T, substring string) (open func()) {
	t.Helper()
	gate := make(chan struct{})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.gates == nil {
		tr.gates = map[string]chan struct{}{}
	}
	tr.gates[substring] = gate
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return open
}

// forOthers returns the requests for the other nodes, and the running watches among them. A watch whose context has
// ended is over. A rejected watch never started: an older API server cannot list by watching.
func (tr *traffic) forOthers() (all, running []*http.Request) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, request := range tr.requests {
		if !strings.Contains(request.URL.String(), otherNodesURL) {
			continue
		}
		all = append(all, request)
		isWatch := request.URL.Query().Get("watch") != ""
		if isWatch && request.Context().Err() == nil && !slices.Contains(tr.rejected, request) {
			running = append(running, request)
		}
	}
	return all, running
}
