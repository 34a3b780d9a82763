package cluster

import (
	"fmt"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func TestAServiceWaitsForNodesThatAreNotKnownYet(t *testing.T) {
	n1, n2 := nodeObject("n1", map[string]string{rack: "1"}), nodeObject("n2", map[string]string{rack: "2"})
	history(t,
		step{"keys that slices answer need no nodes",
			func(w *world) { w.service("plain", 80, policy.Hostname, policy.Zone, policy.AnyNode) }, "service/plain:80"},
		step{"a version without keys is in force", func(w *world) { w.service("web", 80) }, "service/web:80"},
		step{"one with a key waits", func(w *world) { w.service("web", 81, rack) }, ""},
		step{"nothing else does", func(w *world) { w.service("plain", 82) }, "service/plain:82"},
		step{"the latest version that waits counts", func(w *world) { w.service("web", 83, rack, policy.AnyNode) }, ""},
		step{"nodes come one by one", func(w *world) { w.putNode(w.coming, n1) }, ""},
		step{"all are listed", func(w *world) { w.putNode(w.coming, n2); w.listed(w.coming) }, "node/n1{rack=1} node/n2{rack=2} service/web:83"},
		step{"another Service need not wait", func(w *world) { w.service("shop", 80, rack) }, "service/shop:80"},
		step{"one with another key waits", func(w *world) { w.service("shop", 81, rack, row) }, ""},
		step{"the nodes in force are followed meanwhile",
			func(w *world) { w.putNode(w.nodes, nodeObject("n1", map[string]string{rack: "9"})) }, "node/n1{rack=9}"},
		step{"it is deleted while it waits", func(w *world) { w.deleteService("shop") }, "-service/shop"},
		step{"the last Service that needs nodes goes", func(w *world) { w.deleteService("web") }, "-node/n1 -node/n2 -service/web"},
	)
}

func TestNodesAreDeliveredWhenALabelInUseChanges(t *testing.T) {
	labels := func(rackValue, rowValue string) map[string]string {
		return map[string]string{rack: rackValue, row: rowValue}
	}
	both := func(w *world) {
		w.service("a", 80, rack)
		w.service("b", 80, row)
		w.list(nodeObject("n1", labels("1", "1")))
	}
	history(t,
		step{"nodes are listed", both, "node/n1{rack=1,row=1} service/a:80 service/b:80"},
		step{"nothing of it changes", func(w *world) { w.putNode(w.nodes, nodeObject("n1", labels("1", "1"))) }, ""},
		step{"a label changes", func(w *world) { w.putNode(w.nodes, nodeObject("n1", labels("2", "1"))) }, "node/n1{rack=2,row=1}"},
		step{"a key goes out of use", func(w *world) { w.deleteService("b") }, "-service/b"},
		step{"its label changes", func(w *world) { w.putNode(w.nodes, nodeObject("n1", labels("2", "2"))) }, ""},
		step{"it comes into use again, and is listed anew", func(w *world) { w.service("b", 81, row) }, ""},
		step{"all nodes are told, and those that went are gone",
			func(w *world) { w.list(nodeObject("n2", labels("2", "2"))) }, "-node/n1 node/n2{rack=2,row=2} service/b:81"},
		step{"a node goes", func(w *world) { w.nodeGone(w.nodes, nodeObject("n2", nil).name) }, "-node/n2"},
	)
}

func TestAListThatDoesNotComeIsWaitedForNoLonger(t *testing.T) {
	history(t,
		step{"Services wait", func(w *world) { w.service("web", 80, rack); w.service("shop", 80, rack) }, ""},
		step{"not yet", func(w *world) { w.passes(testPace.patience * 9 / 10) }, ""},
		step{"the list is overdue", func(w *world) { w.passes(testPace.patience / 10) }, "service/shop:80 service/web:80"},
		step{"nobody waits for it any more", func(w *world) { w.service("web", 81, rack) }, "service/web:81"},
		step{"another key is waited for", func(w *world) { w.service("web", 82, row) }, ""},
		step{"the list that is under way comes",
			func(w *world) { w.list(nodeObject("n1", map[string]string{rack: "1"})) }, "node/n1{rack=1}"},
		step{"the next one comes",
			func(w *world) { w.list(nodeObject("n1", map[string]string{rack: "1", row: "2"})) }, "node/n1{rack=1,row=2} service/web:82"},
	)
}

func TestAKeyThatGoesBeforeItsListComesIsNotListed(t *testing.T) {
	w := newWorld()
	w.service("a", 80, rack)
	w.list()
	inForce := w.nodes
	w.service("b", 80, row)
	w.passes(testPace.interval)
	if w.coming == nil || !w.coming.isBegun() {
		t.Fatal("the other key is not listed")
	}
	w.deleteService("b")
	if w.coming != nil || w.nodes != inForce {
		t.Error("nodes are listed for a key that nobody names")
	}
	w.listed(newNodeSet(keySet{}))
	if w.nodes != inForce {
		t.Error("a set that was given up took over")
	}
}

// Ten thousand Services that wait are held, released and counted, each once: what follows is proportional to them.
func TestManyServicesMayWaitForOneList(t *testing.T) {
	w := newWorld()
	const services = 10_000
	for i := range services {
		w.service(fmt.Sprintf("s%d", i), 80, rack)
	}
	if len(w.held) != services || w.uses.counts[rack] != services {
		t.Fatalf("%d Services wait and %d name the key, want %d", len(w.held), w.uses.counts[rack], services)
	}
	set := w.coming
	w.list()
	update, _ := w.take()
	if len(update.Change.Services) != services || len(w.held) != 0 || w.uses.counts[rack] != services || w.nodes != set {
		t.Errorf("%d Services were delivered and %d wait, want all and none", len(update.Change.Services), len(w.held))
	}
}
