// Package sent counts what clients write to the API server, on its way out. Whoever sees what a write did sees its count,
// too. What an observer is told once the answer is back comes later: a test that has waited for the effect must not look
// at it at once.
package sent

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// Writes counts the writes of one resource. Its methods may be called concurrently.
type Writes struct {
	resource string

	mutex  sync.Mutex
	counts map[string]int
}

// Of returns a counter of the writes of a resource, which is named as in paths: topologyslices.
func Of(resource string) *Writes { return &Writes{resource: resource, counts: map[string]int{}} }

// By returns a configuration like another one, whose writes are counted.
func (w *Writes) By(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, w} })
	return config
}

type counted struct {
	http.RoundTripper
	by *Writes
}

var operations = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "update", http.MethodDelete: "delete",
}

func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	operation, writes := operations[request.Method]
	if writes && slices.Contains(strings.Split(request.URL.Path, "/"), c.by.resource) {
		c.by.mutex.Lock()
		c.by.counts[operation]++
		c.by.mutex.Unlock()
	}
	return c.RoundTripper.RoundTrip(request)
}

// All returns what was written so far: how often create, update and delete, as in map[create:1].
func (w *Writes) All() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return fmt.Sprint(w.counts)
}

// Taken returns what was written since the last call.
func (w *Writes) Taken() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	text := fmt.Sprint(w.counts)
	clear(w.counts)
	return text
}
