package apiserver_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// traffic sees the requests of a client on their way to the API server, and may stop them.
type traffic struct {
	mu     sync.Mutex
	seen   []*http.Request
	gates  map[string]chan struct{} // by what the URL contains: requests wait until it is closed
	absent string                   // requests whose path ends so are answered as by an API server that does not know the resource
}

// watched returns the configuration with a traffic in its way.
func (tr *traffic) watched(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return through{tr, next} })
	return config
}

// through is a RoundTripper.
type through struct {
	*traffic
	next http.RoundTripper
}

func (r through) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen = append(r.seen, request)
	var gate chan struct{}
	for part, closed := range r.gates {
		if strings.Contains(request.URL.String(), part) {
			gate = closed
		}
	}
	absent := r.absent != "" && strings.HasSuffix(request.URL.Path, r.absent)
	r.mu.Unlock()
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
	return r.next.RoundTrip(request)
}

// gate lets requests whose URL contains part wait until open is called.
func (tr *traffic) gate(t *testing.T, part string) (open func()) {
	t.Helper()
	gate := make(chan struct{})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.gates == nil {
		tr.gates = map[string]chan struct{}{}
	}
	tr.gates[part] = gate
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return open
}

// forOthers returns the requests for the other nodes. A request whose context has ended is over.
func (tr *traffic) forOthers() (all, running []*http.Request) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, request := range tr.seen {
		if !strings.Contains(request.URL.String(), others) {
			continue
		}
		all = append(all, request)
		if request.Context().Err() == nil {
			running = append(running, request)
		}
	}
	return all, running
}
