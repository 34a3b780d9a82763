package apiserver_test

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

func TestChangesDuringOutageArriveAfterIt(t *testing.T) {
	for name, isRefused := range map[string]bool{"connections are refused": true, "connections end without a response": false} {
		t.Run(name, func(t *testing.T) { surviveOutage(t, isRefused) })
	}
}

// surviveOutage disconnects a follower from the API server, changes the objects that it watches, and restarts the API
// server during the outage.
func surviveOutage(t *testing.T, isRefused bool) {
	w := newWriter(t)
	self, other := w.node("self", rackLabel+"=rack-1"), w.node("other", rackLabel+"=rack-1")
	deletedService, kept, moved := w.name("gone"), w.name("stays"), w.name("moved")
	wire, config := newWire(t, admin())
	expired := countExpired(config)
	f := follow(t, config, self, "").started()
	// The watches must have delivered something, so that clients resume from there instead of listing again.
	for _, name := range []string{"gone", "stays", "moved"} {
		w.service(name, keyed(rackLabel))
		w.slice(name+"-1", name, "10.0.0.1")
	}
	f.waitUntil("the last of the objects", endpointsAre(moved, "10.0.0.1"))
	f.waitUntil("the last of the Services", hasService(moved))
	f.waitUntil("the nodes", labelsAre(other, rackLabel+"=rack-1"))

	if isRefused {
		wire.rejectConnections()
	} else {
		wire.closeConns()
	}
	wait.Until(t, "an outage of all watches", func() bool { return len(f.outagesNow()) == 6 })
	outages := f.outagesNow()
	count := f.count()
	w.deleteService("gone")
	w.deleteSlice("gone-1")
	w.deleteNode(other)
	w.slice("stays-2", "stays", "10.0.0.2")
	w.patchSlice("moved-1", `{"metadata": {"labels": {"kubernetes.io/service-name": "stays"}}}`)
	w.label(self, zoneLabel, "zone-a")
	// The new API server does not have the resource versions from before its start, and responds with 410 to watches that
	// resume from there.
	must.Succeed(w.t, api.StopAPIServer())
	must.Succeed(w.t, api.StartAPIServer(t.Context()))
	if got := f.count(); got != count || !f.holds(hasService(deletedService)) || !f.holds(endpointsAre(kept, "10.0.0.1")) {
		t.Errorf("%d updates were delivered during the outage, or the last state is not active", got-count)
	}
	for resource, outage := range f.outagesNow() {
		if began := outages[resource]; !began.since.Equal(outage.since) {
			t.Errorf("the outage of %s is %v, want the one that began before, %v", resource, outage, began)
		}
	}
	wire.heal(isRefused)
	f.waitUntil("a deleted Service", hasNoService(deletedService))
	f.waitUntil("a deleted slice", endpointsAre(deletedService))
	f.waitUntil("a slice that moved, and a new one", endpointsAre(kept, "10.0.0.1", "10.0.0.1", "10.0.0.2"))
	f.waitUntil("the Service that the slice left", endpointsAre(moved))
	f.waitUntil("a deleted node", isUnknown(other))
	f.waitUntil("a label", labelsAre(self, rackLabel+"=rack-1", zoneLabel+"=zone-a"))
	wait.Until(t, "the end of the outage", func() bool { return len(f.outagesNow()) == 0 })
	if expired.Load() == 0 {
		t.Error("no watch expired, so the test did not cover expired resource versions")
	}
	for _, message := range []string{"watch interrupted", "watch resumed"} { // the latter once an update arrives
		wait.Equal(t, message+", logged once for each resource", 6, func() int { return f.log.Count(message) })
	}
}

func TestKilledAPIServerRestarts(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), "none", "").started()
	w.service("before")
	f.waitUntil("a Service before", hasService(w.name("before")))
	count := f.count()
	api.KillAPIServer()
	wait.Until(t, "the outage", func() bool { return len(f.outagesNow()) == 5 })
	must.Succeed(w.t, api.StartAPIServer(t.Context()))
	w.service("after")
	f.waitUntil("a Service after", hasService(w.name("after")))
	for _, update := range f.since(count) {
		for name, service := range update.Change.Services {
			if name.Namespace == w.namespace && service == nil {
				t.Errorf("Service %s was removed during the outage", name)
			}
		}
	}
	if !f.holds(hasService(w.name("before"))) {
		t.Error("the Service before is not active")
	}
}

// countExpired counts the API server's responses that a resource version is expired.
func countExpired(config *rest.Config) *atomic.Int64 {
	var count atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				response.Body = expiredReader{response.Body, &count}
			}
			return response, err
		})
	})
	return &count
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// expiredReader counts the messages about expired resource versions in its data. Such a response arrives in one read.
type expiredReader struct {
	io.ReadCloser
	count *atomic.Int64
}

func (r expiredReader) Read(buffer []byte) (int, error) {
	n, err := r.ReadCloser.Read(buffer)
	if bytes.Contains(buffer[:n], []byte("too old resource version")) {
		r.count.Add(1)
	}
	return n, err
}

func TestChangesAreBatchedWhileProxyIsBusy(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), "none", "").started()
	f.busy.Lock()
	release := func() { f.busy.Unlock() }
	w.service("first")
	f.waitUntil("the first change, which keeps the proxy busy", hasService(w.name("first")))
	count := f.count()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.service(name)
		w.slice(name+"-1", name, "10.0.0.1")
	}
	w.deleteService("a")
	wait.Until(t, "all changes are received, but not delivered", func() bool {
		isThere := func(kind *convert.Kind, name string) bool { return f.UID(kind, w.name(name)) != "" }
		return !isThere(convert.Services, "a") && isThere(convert.Services, "e") && isThere(convert.EndpointSlices, "e-1")
	})
	if got := f.count(); got != count {
		t.Errorf("%d updates were delivered to a busy proxy", got-count)
	}
	release()
	f.waitUntil("all changes", func(state *model.Cluster) bool {
		return state.Service(w.name("a")) == nil && state.Service(w.name("e")) != nil && endpointsAre(w.name("e"), "10.0.0.1")(state)
	})
	// There may be two updates if a change was just being delivered.
	if got := f.count() - count; got > 3 {
		t.Errorf("11 changes arrived in %d updates, want at most 3", got)
	}
}
