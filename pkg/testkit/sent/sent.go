// Package sent counts the writes that clients send to the API server, before they are sent. So when the effect of a
// write is visible, the write has been counted. An observer that is called with the response runs later: a test that
// has waited for the effect must not check its results immediately.
package sent

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// Writes counts the writes of one resource. It is safe for concurrent use.
type Writes struct {
	resource string

	mutex  sync.Mutex
	counts map[string]int
}

// NewCounter returns a counter for a resource, named as in URL paths: topologyslices.
func NewCounter(resource string) *Writes {
	return &Writes{resource: resource, counts: map[string]int{}}
}

// Wrap returns a copy of a configuration whose writes are counted.
func (w *Writes) Wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedTransport{next, w} })
	return config
}

type countedTransport struct {
	http.RoundTripper
	writes *Writes
}

var operations = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "update", http.MethodDelete: "delete",
}

func (c countedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	operation, isWrite := operations[request.Method]
	if isWrite && slices.Contains(strings.Split(request.URL.Path, "/"), c.writes.resource) {
		c.writes.mutex.Lock()
		c.writes.counts[operation]++
		c.writes.mutex.Unlock()
	}
	return c.RoundTripper.RoundTrip(request)
}

// All returns the counts of create, update and delete so far, as in map[create:1].
func (w *Writes) All() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return fmt.Sprint(w.counts)
}

// Take returns the counts since the last call.
func (w *Writes) Take() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	text := fmt.Sprint(w.counts)
	clear(w.counts)
	return text
}
