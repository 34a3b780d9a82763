package apiserver

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// newTestStateWithNodes returns a state in which the other nodes are known.
func newTestStateWithNodes() *testState {
	w := newTestState()
	w.list()
	w.takeUpdate()
	return w
}

// runStepsOn runs steps on a state, in sequence.
func runStepsOn(t *testing.T, w *testState, steps ...step) {
	t.Helper()
	for _, step := range steps {
		step.do(w)
		if got := w.delivered(); got != step.want {
			t.Errorf("%s: delivered %q, want %q", step.name, got, step.want)
		}
	}
}

func withLeaseState(state model.DemandState) func(*testState) {
	return func(w *testState) { w.setDemandLease(state) }
}

func demandList(objects ...*object) func(*testState) {
	return func(w *testState) { w.replace(convert.ServiceDemands, objects) }
}

func TestMeasuredDemandAndItsStateAreDelivered(t *testing.T) {
	bad := []model.Finding{{Kind: "ServiceDemand", Name: nameOf("web"), Code: model.Invalid, Reason: "bad"}}
	runStepsOn(t, newTestStateWithNodes(),
		step{"a Service needs measured demand", func(w *testState) { w.measured("web", 80) }, ""},
		step{"it is requested", func(w *testState) { w.nodes.StartMeasuredTimeout(w.now) }, ""},
		step{"another Service is not blocked", func(w *testState) { w.service("plain", 80) }, "service/plain:80"},
		step{"there is a publisher", withLeaseState(model.DemandActive), ""},
		step{"it is listed", demandList(demandObject("web", 1), demandObject("other", 2)), "counts demand/other:2 demand/web:1 service/web:80"},
		step{"another Service is not blocked either", func(w *testState) { w.measured("web-2", 80) }, "service/web-2:80"},
		step{"an object changes", func(w *testState) { w.put(convert.ServiceDemands, demandObject("web", 3)) }, "demand/web:3"},
		step{"an invalid version has no effect", func(w *testState) {
			w.put(convert.ServiceDemands, &object{name: nameOf("web"), rejected: bad})
		}, ""},
		step{"an object is deleted", func(w *testState) { w.remove(convert.ServiceDemands, nameOf("other")) }, "-demand/other"},
		step{"it is stale", withLeaseState(model.DemandStale), "stale"},
		step{"it is fresh again", withLeaseState(model.DemandActive), "counts"},
		step{"no publisher", withLeaseState(model.DemandUnavailable), "unpublished"},
		step{"a publisher again", withLeaseState(model.DemandActive), "counts"},
		step{"another list", demandList(demandObject("other", 4)), "-demand/web demand/other:4"},
		step{"it is still needed", func(w *testState) {
			if w.dropDemands() {
				t.Error("dropped although Services need it")
			}
		}, ""},
		step{"no Service needs it", func(w *testState) { w.bounded(80); w.deleteService("web-2") }, "-service/web-2 service/web:80"},
		step{"it is dropped", func(w *testState) { w.dropDemands() }, "-demand/other unknown"},
		step{"a Service needs it again and is blocked", func(w *testState) { w.measured("web", 81); w.nodes.StartMeasuredTimeout(w.now) }, ""},
		step{"the list arrives first", demandList(demandObject("web", 5)), "demand/web:5"},
		step{"then the Lease", withLeaseState(model.DemandStale), "service/web:81 stale"},
	)
}

// Until all lists are complete, the state must be the one without a publisher.
func TestNewDemandPublisherBlocksNothing(t *testing.T) {
	runStepsOn(t, newTestStateWithNodes(),
		step{"a Service needs measured demand", func(w *testState) { w.measured("web", 80); w.nodes.StartMeasuredTimeout(w.now) }, ""},
		step{"no publisher", withLeaseState(model.DemandUnavailable), "service/web:80 unpublished"},
		step{"a publisher appears", withLeaseState(model.DemandActive), ""},
		step{"another Service needs it", func(w *testState) { w.measured("web-2", 80) }, "service/web-2:80"},
		step{"the list is complete", demandList(demandObject("web", 1)), "counts demand/web:1"},
	)
}

func TestUnavailableDemandDoesNotBlock(t *testing.T) {
	for name, event := range map[string]func(*testState){
		"there is no publisher":   withLeaseState(model.DemandUnavailable),
		"the kind does not exist": func(w *testState) { w.setDemandLease(model.DemandActive); w.markUnavailable(convert.ServiceDemands) },
		"listing is forbidden":    func(w *testState) { w.setDemandLease(model.DemandStale); w.markUnavailable(convert.ServiceDemands) },
		"the list fails first":    func(w *testState) { w.markUnavailable(convert.ServiceDemands) },
	} {
		t.Run(name, func(t *testing.T) {
			runStepsOn(t, newTestStateWithNodes(),
				step{"the Service is blocked", func(w *testState) { w.measured("web", 80); w.nodes.StartMeasuredTimeout(w.now) }, ""},
				step{name, event, "service/web:80 unpublished"},
				step{"objects arrive", func(w *testState) {
					w.setDemandLease(model.DemandActive)
					demandList(demandObject("web", 1))(w)
				}, "counts demand/web:1"},
			)
		})
	}
}

// A Service may wait for the nodes and for measured demand together.
func TestDemandWaitHasTheSameTimeout(t *testing.T) {
	waited := 0
	advance := func(duration time.Duration) func(*testState) {
		return func(w *testState) {
			w.now = w.now.Add(duration)
			_, waited = w.expire()
		}
	}
	w := newTestState()
	runStepsOn(t, w,
		step{"a Service is blocked", func(w *testState) {
			w.measured("web", 80)
			w.nodes.StartListTimeout(w.now)
			w.nodes.StartMeasuredTimeout(w.now)
		}, ""},
		step{"nodes are known", func(w *testState) { w.list() }, ""},
		step{"not yet", advance(nodes.LabelTimeout - 1), ""},
		step{"a change does not extend the timeout", func(w *testState) { w.measured("web", 81) }, ""},
	)
	if at, ok := w.next(); !ok || !at.Equal(w.now.Add(1)) {
		t.Errorf("next deadline %v, %v", at, ok)
	}
	runStepsOn(t, w, step{"the timeout", advance(1), "service/web:81"})
	if waited != 1 {
		t.Errorf("%d Services timed out, want 1", waited)
	}
	runStepsOn(t, w,
		step{"another Service is not blocked", func(w *testState) { w.measured("web-2", 80) }, "service/web-2:80"},
		step{"a Lease alone has no effect", withLeaseState(model.DemandActive), ""},
		step{"objects arrive", demandList(demandObject("web", 1)), "counts demand/web:1"},
	)
	if at, ok := w.next(); ok {
		t.Errorf("there is a deadline at %v", at)
	}
	runStepsOn(t, newTestState(),
		step{"a Service is blocked", func(w *testState) {
			w.measured("web", 80)
			w.nodes.StartListTimeout(w.now)
			w.nodes.StartMeasuredTimeout(w.now)
		}, ""},
		step{"measured demand is known", func(w *testState) { w.setDemandLease(model.DemandActive); demandList()(w) }, "counts"},
		step{"nodes are known", func(w *testState) { w.list() }, "service/web:80"},
	)
}

// TestWhichServicesNeedMeasuredDemand: measured demand has no meaning without a bound, and DNS does not count clients.
func TestWhichServicesNeedMeasuredDemand(t *testing.T) {
	for name, test := range map[string]struct {
		topology   policy.Topology
		isHeadless bool
		want       bool
	}{
		"a bound":              {policy.Topology{MaxLoad: 120, Measured: true}, false, true},
		"no bound":             {policy.Topology{Measured: true}, false, false},
		"a bound with clients": {policy.Topology{MaxLoad: 120, Clients: []string{"a/b"}}, false, false},
		"a headless Service":   {policy.Topology{MaxLoad: 120, Measured: true}, true, false},
		"neither":              {},
	} {
		w := newTestStateWithNodes()
		w.putVersion("web", &model.Service{
			Name: nameOf("web"), Ports: []model.ServicePort{{Port: 80}}, Topology: test.topology, IsHeadless: test.isHeadless,
		})
		if w.nodes.NeedsMeasured() != test.want {
			t.Errorf("%s: measured demand is needed: %v", name, w.nodes.NeedsMeasured())
		}
		w.deleteService("web")
		if w.nodes.NeedsMeasured() {
			t.Errorf("%s: measured demand is needed after the Service was deleted", name)
		}
	}
}
