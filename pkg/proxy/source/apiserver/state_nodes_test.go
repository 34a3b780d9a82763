package apiserver

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

func TestServiceIsBlockedUntilNodesAreKnown(t *testing.T) {
	n1, n2 := nodeObject("n1", map[string]string{rack: "1"}), nodeObject("n2", map[string]string{rack: "2", row: "3"})
	runSteps(t,
		step{"keys that slices contain need no nodes",
			func(w *testState) { w.service("plain", 80, policy.Hostname, policy.Zone, policy.AnyNode) }, "service/plain:80"},
		step{"a version without keys is active", func(w *testState) { w.service("web", 80) }, "service/web:80"},
		step{"a version with a key is blocked", func(w *testState) { w.service("web", 81, rack) }, ""},
		step{"another Service is not blocked", func(w *testState) { w.service("plain", 82) }, "service/plain:82"},
		step{"the newest blocked version counts", func(w *testState) { w.service("web", 83, rack, policy.AnyNode) }, ""},
		step{"a blocked Service is deleted", func(w *testState) { w.service("shop", 80, rack); w.deleteService("shop") }, "-service/shop"},
		step{"all nodes are listed", func(w *testState) { w.list(n1, n2) }, "node/n1{rack=1} node/n2{rack=2} service/web:83"},
		step{"another Service is not blocked any more", func(w *testState) { w.service("shop", 80, rack) }, "service/shop:80"},
		step{"nor is one with another key", func(w *testState) { w.service("shop", 81, rack, row) }, "node/n2{rack=2,row=3} service/shop:81"},
		step{"the nodes are watched", func(w *testState) { w.other(map[string]string{rack: "9"}) }, "node/n1{rack=9}"},
		step{"a version without keys is not blocked", func(w *testState) { w.service("shop", 82) }, "service/shop:82"},
		step{"the nodes stay while a Service needs them", func(w *testState) { wantDropped(t, w, false) }, ""},
		step{"the last Service that needs them is deleted", func(w *testState) { w.deleteService("web") }, "-service/web"},
		step{"they are dropped", func(w *testState) { wantDropped(t, w, true) }, "-node/n1 -node/n2"},
		step{"a Service is blocked again", func(w *testState) { w.service("web", 84, rack) }, ""},
	)
}

func wantDropped(t *testing.T, w *testState, want bool) {
	t.Helper()
	if got := w.dropPeers(); got != want {
		t.Errorf("the other nodes were dropped: %v, want %v", got, want)
	}
}

func TestNodesAreDeliveredWhenALabelInUseChanges(t *testing.T) {
	labels := func(rackValue, rowValue string) map[string]string {
		return map[string]string{rack: rackValue, row: rowValue}
	}
	runSteps(t,
		step{"nodes are listed", func(w *testState) {
			w.service("a", 80, rack)
			w.service("b", 80, row)
			w.list(nodeObject("n1", labels("1", "1")))
		}, "node/n1{rack=1,row=1} service/a:80 service/b:80"},
		step{"an unchanged node", func(w *testState) { w.other(labels("1", "1")) }, ""},
		step{"a label changes", func(w *testState) { w.other(labels("2", "1")) }, "node/n1{rack=2,row=1}"},
		step{"a key is no longer used", func(w *testState) { w.deleteService("b") }, "-service/b"},
		step{"its label changes", func(w *testState) { w.other(labels("2", "2")) }, ""},
		step{"the key is used again", func(w *testState) { w.service("b", 81, row) }, "node/n1{rack=2,row=2} service/b:81"},
		step{"the Service is recreated, and the label is the same", func(w *testState) {
			w.deleteService("b")
			w.service("b", 82, row)
		}, "service/b:82"},
		step{"after an outage", func(w *testState) { w.list(nodeObject("n2", labels("2", "2"))) }, "-node/n1 node/n2{rack=2,row=2}"},
		step{"a node is deleted", func(w *testState) { w.remove(convert.OtherNodes, model.ObjectName{Name: "n2"}) }, "-node/n2"},
	)
}

func TestListTimeout(t *testing.T) {
	runSteps(t,
		step{"Services are blocked", func(w *testState) { w.service("web", 80, rack); w.service("shop", 80, row) }, ""},
		step{"the list is overdue", func(w *testState) {
			w.nodes.StartListTimeout(w.now)
			if timeouts := w.wait(nodes.LabelTimeout - 1); timeouts != nil {
				t.Errorf("timed out too early: %+v", timeouts)
			}
			if timeouts := w.wait(1); timeouts == nil || timeouts.Services != 2 || !slices.Equal(timeouts.Keys, []string{rack, row}) {
				t.Errorf("timeouts %+v, want 2 Services for %s and %s", timeouts, rack, row)
			}
		}, "service/shop:80 service/web:80"},
		step{"no Service is blocked any more", func(w *testState) { w.service("web", 81, rack) }, "service/web:81"},
		step{"regardless of the key", func(w *testState) { w.service("web", 82, "example.com/other") }, "service/web:82"},
		step{"the list arrives", func(w *testState) { w.list(nodeObject("n1", map[string]string{row: "1"})) }, "node/n1{row=1}"},
	)
}

// A user who keeps editing a Service must block no Service of another user, use no memory, and cause no check of nodes
// without the label.
func TestChangingKeysCostsNothing(t *testing.T) {
	w := newTestState()
	w.service("attacker", 80, "evil.example/first")
	w.list(nodeObject("n1", map[string]string{rack: "1"}))
	w.delivered()
	for i := range 1000 {
		w.service("attacker", 80, policy.Key(fmt.Sprintf("evil.example/%d", i)))
		if got := w.delivered(); got != "service/attacker:80" {
			t.Fatalf("edit %d delivers %q, want only the Service", i, got)
		}
	}
	if at, ok := w.next(); ok || len(w.blocked) != 0 {
		t.Errorf("%d Services are blocked, next deadline %v, %v", len(w.blocked), at, ok)
	}
	w.service("victim", 80, rack)
	if got, want := w.delivered(), "node/n1{rack=1} service/victim:80"; got != want {
		t.Errorf("a Service of another user delivers %q, want %q", got, want)
	}
}

// Ten thousand waiting Services are blocked, released and counted, each once: the work is proportional to them.
func TestManyServicesMayWaitForOneList(t *testing.T) {
	w := newTestState()
	const services = 10_000
	for i := range services {
		w.service(fmt.Sprintf("s%d", i), 80, rack)
	}
	if len(w.blocked) != services {
		t.Fatalf("%d Services are blocked, want %d", len(w.blocked), services)
	}
	w.list()
	update, _ := w.takeUpdate()
	if len(update.Change.Services) != services || len(w.blocked) != 0 {
		t.Errorf("%d Services were delivered and %d are blocked, want all and none", len(update.Change.Services), len(w.blocked))
	}
}

// A bound needs the labels that state the demand of each node, even if its keys need none.
func TestABoundNeedsAllNodes(t *testing.T) {
	bound := func(w *testState, port uint16, limit uint64) {
		w.putVersion("web", &model.Service{
			Name: nameOf("web"), Ports: []model.ServicePort{{Port: port}},
			Topology: policy.Topology{Keys: []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}, MaxLoad: limit},
		})
	}
	labels := func(zone, demand string) map[string]string {
		return map[string]string{string(policy.Zone): zone, policy.DemandLabel: demand, rack: "1"}
	}
	runSteps(t,
		step{"keys that slices contain", func(w *testState) { bound(w, 80, 0) }, "service/web:80"},
		step{"a bound is blocked", func(w *testState) { bound(w, 81, 120) }, ""},
		step{"all nodes are listed", func(w *testState) { w.list(nodeObject("n1", labels("a", "3"))) },
			"node/n1{zone=a,demand-weight=3} service/web:81"},
		step{"a node has more demand", func(w *testState) { w.list(nodeObject("n1", labels("a", "4"))) },
			"node/n1{zone=a,demand-weight=4}"},
		step{"an unused label changes", func(w *testState) {
			changed := labels("a", "4")
			changed[rack] = "2"
			w.list(nodeObject("n1", changed))
		}, ""},
		step{"the bound is removed", func(w *testState) { bound(w, 82, 0) }, "service/web:82"},
		step{"the nodes are dropped", func(w *testState) { wantDropped(t, w, true) }, "-node/n1"},
	)
	w := newTestState()
	for _, step := range []struct {
		happens func()
		knows   bool
	}{
		{func() { bound(w, 80, 120); w.list(nodeObject("n1", labels("a", "3"))) }, true},
		{func() { bound(w, 80, 0); wantDropped(t, w, true) }, false},
	} {
		step.happens()
		if update, _ := w.takeUpdate(); update.Change.AllNodes == nil || *update.Change.AllNodes != step.knows {
			t.Errorf("AllNodes = %v, want %t", update.Change.AllNodes, step.knows)
		}
	}
}
