package apiserver_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// otherNodesURL is the part of the URL that only requests for the other nodes contain.
const otherNodesURL = "/api/v1/nodes?allowWatchBookmarks=true&fieldSelector=metadata.name%21%3D"

func TestLocalNodeIsWatched(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), w.namespace+"-self", "").started()
	node := w.node("self")
	f.waitUntil("a node that appears late is known", labelsAre(node))
	w.label(node, zoneLabel, "zone-a")
	f.waitUntil("a zone that appears late is known", labelsAre(node, zoneLabel+"=zone-a"))
	w.label(node, zoneLabel, "zone-b")
	f.waitUntil("a zone that changes is known", labelsAre(node, zoneLabel+"=zone-b"))

	count := f.count()
	w.deleteNode(node)
	wait.Until(t, "its deletion is reported", func() bool {
		updates := f.since(count)
		return len(updates) == 1 && len(updates[0].Change.Nodes) == 1 && updates[0].Change.Nodes[node] == nil
	})
	if !f.holds(labelsAre(node, zoneLabel+"=zone-b")) {
		t.Error("the last labels are not active")
	}
	w.node("self", zoneLabel+"=zone-c")
	f.waitUntil("a recreated node is known", labelsAre(node, zoneLabel+"=zone-c"))
}

func TestHeartbeatsAndUnusedLabelsAreNotDelivered(t *testing.T) {
	w := newWriter(t)
	self, other := w.node("self", zoneLabel+"=zone-a", rackLabel+"=rack-1"), w.node("other", rackLabel+"=rack-1", "example.com/row=row-1")
	f := follow(t, admin(), self, "").started()
	web := w.name("web")
	w.service("web", keyed(rackLabel))
	f.waitUntil("the Service is active", hasService(web))
	f.waitUntil("the label of the other node that is in use", labelsAre(other, rackLabel+"=rack-1"))
	f.waitUntil("the labels of this node that are in use", labelsAre(self, rackLabel+"=rack-1", zoneLabel+"=zone-a"))

	count := f.count()
	for range 20 {
		w.heartbeat(self)
		w.heartbeat(other)
	}
	w.label(self, "example.com/row", "row-2")
	w.label(other, "example.com/row", "row-2")
	// When the first relevant change has arrived, all previous changes have been received.
	w.label(other, rackLabel, "rack-2")
	f.waitUntil("the other node's rack", labelsAre(other, rackLabel+"=rack-2"))
	w.label(self, rackLabel, "rack-2")
	f.waitUntil("this node's rack", labelsAre(self, rackLabel+"=rack-2", zoneLabel+"=zone-a"))
	if got := f.count() - count; got != 2 {
		t.Errorf("%d updates were delivered, want those of the 2 labels in use: %v", got, f.since(count))
	}
}

// TestNodeConditionsMakeLocalNodeIneligible uses the conditions in the Node's status, which a watch of
// metadata alone would lack. Kubelet's heartbeats change nothing.
func TestNodeConditionsMakeLocalNodeIneligible(t *testing.T) {
	w := newWriter(t)
	self := w.node("self")
	f := follow(t, admin(), self, "").started()
	notEligibleIs := func(reason string) func(*model.Cluster) bool {
		return func(state *model.Cluster) bool { return state.Self().IneligibleReason == reason }
	}
	for _, condition := range []string{"DrainInProgress", "MaintenanceInProgress", "GracefulNodeShutdownInProgress"} {
		w.condition(self, condition, "True")
		f.waitUntil(condition+" is known", notEligibleIs("it has the condition "+condition))
		count := f.count()
		for range 20 {
			w.heartbeat(self)
		}
		w.condition(self, condition, "False")
		f.waitUntil(condition+" is over", notEligibleIs(""))
		if got := f.count() - count; got != 1 {
			t.Errorf("%d updates were delivered, want that of the condition alone: %v", got, f.since(count))
		}
	}
}

func TestOtherNodesAreWatchedOnlyWhileAServiceNeedsThem(t *testing.T) {
	w := newWriter(t)
	self, other := w.node("self", rackLabel+"=rack-1"), w.node("other", rackLabel+"=rack-1", "example.com/row=row-1")
	var seen traffic
	f := follow(t, seen.record(admin()), self, "").started()

	w.service("by-slices", keyed("kubernetes.io/hostname, "+zoneLabel+", *"))
	f.waitUntil("a Service whose keys need only EndpointSlices", hasService(w.name("by-slices")))
	if all, _ := seen.forOthers(); len(all) > 0 {
		t.Errorf("other nodes were requested: %v", all[0].URL)
	}

	w.service("racks", keyed(rackLabel+", *"))
	f.waitUntil("a Service with a rack key", hasService(w.name("racks")))
	f.waitUntil("the other node is known", labelsAre(other, rackLabel+"=rack-1"))
	all, _ := seen.forOthers()
	for _, request := range all {
		if accept := request.Header.Get("Accept"); !isMetadataOnly(accept) {
			t.Errorf("other nodes were requested with Accept %q, want their metadata in protobuf", accept)
		}
	}

	w.service("rows", keyed("example.com/row"))
	f.waitUntil("a Service with another key", hasService(w.name("rows")))
	f.waitUntil("both labels of the other node", labelsAre(other, rackLabel+"=rack-1", "example.com/row=row-1"))
	wait.Until(t, "one watch remains", func() bool { _, running := seen.forOthers(); return len(running) == 1 })

	w.deleteService("rows")
	w.patchService("racks", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": "*"}}}`)
	f.waitUntil("the other node is unknown again", isUnknown(other))
	if f.holds(isUnknown(self)) {
		t.Error("this node is also unknown")
	}
	wait.Until(t, "no watch remains", func() bool { _, running := seen.forOthers(); return len(running) == 0 })

	w.label(other, rackLabel, "rack-2")
	w.patchService("racks", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": "example.com/rack"}}}`)
	f.waitUntil("the node is known again, with its new label", labelsAre(other, rackLabel+"=rack-2"))
	w.deleteNode(other)
	f.waitUntil("the node is gone", isUnknown(other))
}

func isMetadataOnly(accept string) bool {
	first, _, _ := strings.Cut(accept, ",")
	return strings.HasPrefix(first, "application/vnd.kubernetes.protobuf") && strings.Contains(first, "as=PartialObjectMetadata;")
}

func TestOnlyServiceThatNeedsLabelsWaits(t *testing.T) {
	w := newWriter(t)
	self, other := w.node("self", rackLabel+"=rack-1"), w.node("other", rackLabel+"=rack-1")
	var slow traffic
	open := slow.gate(t, otherNodesURL)
	f := follow(t, slow.record(admin()), self, "").started()
	web, plain := w.name("web"), w.name("plain")
	w.service("web")
	f.waitUntil("the Service is active without keys", hasService(web))

	count := f.count()
	w.patchService("web", `{"metadata": {"annotations": {"vicinity.dev/topology-keys": "example.com/rack"}}}`)
	wait.Until(t, "the nodes are requested", func() bool { all, _ := slow.forOthers(); return len(all) > 0 })
	w.service("plain")
	w.slice("web-1", "web", "10.0.0.1")
	f.waitUntil("another Service does not wait", hasService(plain))
	f.waitUntil("its own slices do not wait", endpointsAre(web, "10.0.0.1"))
	if !f.holds(func(state *model.Cluster) bool { return len(state.Service(web).Topology.Keys) == 0 }) {
		t.Error("the Service is active with unknown nodes")
	}
	open()
	f.waitUntil("the Service is active with its key", func(state *model.Cluster) bool { return len(state.Service(web).Topology.Keys) == 1 })
	for _, update := range f.since(count) {
		if service := update.Change.Services[web]; service != nil && update.Change.Nodes[other] == nil {
			t.Error("the Service was delivered before the nodes")
		}
	}
}

func TestServicesAreServedWithoutRightToListNodes(t *testing.T) {
	w := newWriter(t)
	user := w.namespace + "-user"
	config := api.User(t, user)
	w.grant(user, "", "services")
	w.grant(user, "discovery.k8s.io", "endpointslices")
	w.grant(user, "networking.k8s.io", "servicecidrs")
	self := w.node("self", rackLabel+"=rack-1")
	w.grant(user, "", "nodes", self)
	other := w.node("other", rackLabel+"=rack-1")
	w.service("web", keyed(rackLabel))

	f := follow(t, config, self, "").started()
	if !f.holds(hasService(w.name("web"))) || !f.holds(isUnknown(other)) {
		t.Error("the first update is not the Service without the nodes")
	}
	outages := f.outagesNow()
	for _, resource := range []string{"nodes", "nodes/evacuated"} {
		if nodes, known := outages[resource]; !known || len(outages) != 2 || !strings.Contains(nodes.err.Error(), "forbidden") {
			t.Errorf("outages %v, want only two: nodes forbidden, and evacuated nodes forbidden", outages)
		}
	}
	for want, times := range map[string]int{
		"nodes is forbidden": 2, "timed out listing other nodes": 1, "listing Nodes by label is forbidden": 1,
	} {
		if got := strings.Count(f.log.String(), want); got != times {
			t.Errorf("%q was logged %d times, want %d", want, got, times)
		}
	}
	w.grant(user, "", "nodes")
	f.waitUntil("the nodes are known once allowed", labelsAre(other, rackLabel+"=rack-1"))
	wait.Until(t, "the outage is over", func() bool { return len(f.outagesNow()) == 0 })
}

// grant lets a user list and watch a resource, or only the objects with these names.
func (w *writer) grant(user, group, resource string, names ...string) {
	w.t.Helper()
	api.Grant(w.t, user, rbacv1.PolicyRule{
		Verbs: []string{"list", "watch"}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names,
	})
}

// TestIsReady needs a separate request, because the watches lack the conditions of other Nodes.
func TestIsReady(t *testing.T) {
	w := newWriter(t)
	self, other := w.node("self"), w.node("other")
	watcher, err := apiserver.New(admin(), apiserver.Options{View: convert.View{Node: self}, Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	for _, step := range []struct {
		status string
		want   bool
	}{{"True", true}, {"Unknown", false}, {"True", true}, {"False", false}} {
		w.condition(other, "Ready", step.status)
		wait.Success(t, "Ready is "+step.status, func() error {
			isReady, err := watcher.IsReady(t.Context(), other)
			if err == nil && isReady != step.want {
				err = fmt.Errorf("IsReady() = %t", isReady)
			}
			return err
		})
	}
	if isReady, err := watcher.IsReady(t.Context(), "gone-node"); err != nil || isReady {
		t.Errorf("IsReady() of a missing Node = %t, %v, want false", isReady, err)
	}
}
