package apiserver

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// step is an event, and the update that it causes.
type step struct {
	name string
	do   func(*testState)
	want string
}

// runSteps runs steps on a new state, in sequence.
func runSteps(t *testing.T, steps ...step) {
	t.Helper()
	w := newTestState()
	for _, step := range steps {
		step.do(w)
		if got := w.delivered(); got != step.want {
			t.Errorf("%s: delivered %q, want %q", step.name, got, step.want)
		}
	}
}

func problem(name, reason string) model.Finding {
	return model.Finding{Kind: convert.ServiceKind, Name: nameOf(name), Code: model.Invalid, Reason: reason}
}

func TestServiceChangesAreDelivered(t *testing.T) {
	bad := problem("web", "bad")
	runSteps(t,
		step{"it is added", func(w *testState) { w.service("web", 80) }, "service/web:80"},
		step{"an unused field changes", func(w *testState) { w.service("web", 80) }, ""},
		step{"it changes", func(w *testState) { w.service("web", 81) }, "service/web:81"},
		step{"an invalid version leaves the last one active", func(w *testState) { w.putVersion("web", nil, bad) }, ""},
		step{"it is valid and unchanged again", func(w *testState) { w.service("web", 81) }, ""},
		step{"it is no longer ours", func(w *testState) { w.putVersion("web", nil) }, "-service/web"},
		step{"it is still not ours", func(w *testState) { w.putVersion("web", nil) }, ""},
		step{"it is ours again", func(w *testState) { w.service("web", 81) }, "service/web:81"},
		step{"it is deleted", func(w *testState) { w.deleteService("web") }, "-service/web"},
		step{"it is recreated", func(w *testState) { w.deleteService("web"); w.service("web", 82) }, "service/web:82"},
		step{"another one that is not ours is added", func(w *testState) { w.putVersion("foreign", nil) }, ""},
		step{"another one that is invalid is added", func(w *testState) { w.putVersion("bad", nil, bad) }, ""},
	)
}

func TestSliceChangesAreDelivered(t *testing.T) {
	at := func(minute int, addresses ...string) *model.EndpointSlice {
		return &model.EndpointSlice{
			Name: nameOf("a"), Service: nameOf("web"), Endpoints: endpointsAt(addresses...),
			TriggeredAt: time.Date(2026, 11, 21, 8, minute, 0, 0, time.UTC),
		}
	}
	runSteps(t,
		step{"it is added", func(w *testState) { w.slice(at(0, "10.0.0.1")) }, "slice/a:1"},
		step{"only its timestamp changes", func(w *testState) { w.slice(at(1, "10.0.0.1")) }, ""},
		step{"it changes", func(w *testState) { w.slice(at(2, "10.0.0.1", "10.0.0.2")) }, "slice/a:2"},
		step{"it becomes headless", func(w *testState) { w.slice(nil) }, "-slice/a"},
		step{"it is no longer headless", func(w *testState) { w.slice(at(3, "10.0.0.1")) }, "slice/a:1"},
		step{"it is deleted", func(w *testState) { w.remove(convert.EndpointSlices, nameOf("a")) }, "-slice/a"},
	)
}

func TestServiceCIDRsAreDelivered(t *testing.T) {
	name := model.ObjectName{Name: "a"}
	put := func(text string) func(*testState) {
		return func(w *testState) {
			w.put(convert.ServiceCIDRs, &object{name: name, value: []netip.Prefix{netip.MustParsePrefix(text)}})
		}
	}
	runSteps(t,
		step{"one is added", put("10.96.0.0/16"), "range/a:[10.96.0.0/16]"},
		step{"its status changes", put("10.96.0.0/16"), ""},
		step{"it changes", put("10.97.0.0/16"), "range/a:[10.97.0.0/16]"},
		step{"it is deleted", func(w *testState) { w.remove(convert.ServiceCIDRs, name) }, "range/a:[]"},
	)
}

// Objects that the list lacks are removed, as after an outage. All of it is one change.
func TestListReplacesTheState(t *testing.T) {
	newObject := func(name string, port uint16) *object {
		return &object{name: nameOf(name), value: &model.Service{Name: nameOf(name), Ports: []model.ServicePort{{Port: port}}}}
	}
	bad := &object{name: nameOf("bad"), rejected: []model.Finding{problem("bad", "why")}}
	ignored := &object{name: nameOf("not ours"), ignored: []model.Finding{problem("not ours", "why")}}
	runSteps(t,
		step{"a list", func(w *testState) {
			w.replace(convert.Services, []*object{newObject("a", 1), newObject("b", 1), newObject("c", 1), bad, ignored})
		},
			"service/a:1 service/b:1 service/c:1"},
		step{"another one", func(w *testState) {
			w.replace(convert.Services, []*object{newObject("b", 1), newObject("c", 2), newObject("d", 1)})
		},
			"-service/a service/c:2 service/d:1"},
		step{"no problems remain", func(w *testState) {
			if len(w.problems) > 0 {
				t.Errorf("problems remain: %v", w.problems)
			}
		}, ""},
		step{"an empty one", func(w *testState) { w.replace(convert.Services, nil) }, "-service/b -service/c -service/d"},
	)
}

func TestThisNodeIsDeliveredWithTheLabelsInUse(t *testing.T) {
	zone := string(policy.Zone)
	putSelf := func(labels map[string]string) func(*testState) {
		return func(w *testState) { w.put(convert.Nodes, nodeObject("self", labels)) }
	}
	runSteps(t,
		step{"it is added", putSelf(map[string]string{zone: "a", rack: "1", "x": "y"}), "node/self{zone=a}"},
		step{"a label that no Service uses changes", putSelf(map[string]string{zone: "a", rack: "2", "x": "z"}), ""},
		step{"the zone changes", putSelf(map[string]string{zone: "b", rack: "2"}), "node/self{zone=b}"},
		step{"a Service names another label", func(w *testState) { w.service("web", 80, rack); w.list() },
			"node/self{rack=2,zone=b} service/web:80"},
		step{"that label changes", putSelf(map[string]string{zone: "b", rack: "3"}), "node/self{rack=3,zone=b}"},
		step{"no Service names it", func(w *testState) { w.service("web", 80) }, "service/web:80"},
		step{"that label changes", putSelf(map[string]string{zone: "b", rack: "4"}), ""},
		step{"it is named again", func(w *testState) { w.service("web", 80, rack) }, "node/self{rack=4,zone=b} service/web:80"},
		step{"it is deleted", func(w *testState) { w.remove(convert.Nodes, model.ObjectName{Name: "self"}) }, "-node/self"},
		step{"it is added again", putSelf(map[string]string{zone: "b", rack: "3"}), "node/self{rack=3,zone=b}"},
	)
}

func TestProblemsAreDeliveredSortedAndWhenTheyChange(t *testing.T) {
	w := newTestState()
	type problems []model.Finding
	expect := func(what string, added, resolved problems) {
		t.Helper()
		update, isNew := w.takeUpdate()
		got, want := [2]problems{update.NewProblems, update.ResolvedProblems}, [2]problems{added, resolved}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || isNew != (len(added)+len(resolved) > 0) {
			t.Errorf("%s: changed: %v; newly rejected, and resolved (-want +got):\n%s", what, isNew, diff)
		}
	}
	a, b, other := problem("a", "why"), problem("b", "why"), problem("b", "something else")
	expect("nothing is rejected", nil, nil)
	w.putVersion("b", nil, b)
	w.putVersion("a", nil, a)
	expect("two are rejected", problems{a, b}, nil)
	w.putVersion("a", nil, a)
	expect("one is rejected again for the same reason", nil, nil)
	w.putVersion("b", nil, b, other)
	expect("one has another problem, too", problems{other}, nil)
	w.putVersion("b", nil, other)
	expect("the first problem is resolved", nil, problems{b})
	w.remove(convert.Services, nameOf("a"))
	w.putVersion("a", nil, a)
	expect("one is recreated between two updates", nil, nil)
	w.putVersion("a", nil)
	w.deleteService("b")
	expect("one is no longer ours, the other is deleted", nil, problems{a, other})
}
