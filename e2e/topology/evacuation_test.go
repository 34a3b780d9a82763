package topology_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/publish"
)

func withEvacuations(o *publish.Options) { o.Evacuations = true }

func withPublished(o *cluster.Options) { o.PublishedEvacuations = true }

// setConditions has a Node say which conditions are True.
func setConditions(t testing.TB, node string, conditions ...corev1.NodeConditionType) {
	t.Helper()
	wait.Success(t, "the conditions of "+node, func() error {
		full, err := api.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		full.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, condition := range conditions {
			full.Status.Conditions = append(full.Status.Conditions, corev1.NodeCondition{Type: condition, Status: corev1.ConditionTrue})
		}
		_, err = api.Admin.CoreV1().Nodes().UpdateStatus(t.Context(), full, metav1.UpdateOptions{})
		return err
	})
}

func (f *follower) evacuated() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return fmt.Sprint(f.draining)
}

func (f *follower) awaitEvacuated(want string) {
	f.t.Helper()
	wait.Equal(f.t, "evacuated nodes", want, f.evacuated)
}

// TestAConditionOfANodeEvacuatesIt, through a publisher, for proxies that are told to heed it: until the condition ends, also if
// the Node goes meanwhile, and another publisher takes over.
func TestAConditionOfANodeEvacuatesIt(t *testing.T) {
	config := install(t)
	want := createNodes(t, 0, 5)
	first := start(t, config, "one", withEvacuations)
	awaitNodes(t, "all nodes", want)
	account := asProxy(t)
	heeds, others := follow(t, account, cluster.AutoTopology, withPublished), follow(t, account, cluster.AutoTopology)
	first.writes.Taken()

	setConditions(t, "node-0003", corev1.NodeDrainInProgress)
	heeds.awaitEvacuated("map[node-0003:DrainInProgress]")
	if got := first.writes.Taken(); got != "map[create:1]" {
		t.Errorf("for one evacuation: %s", got)
	}
	setConditions(t, "node-0003", corev1.NodeMaintenanceInProgress)
	setConditions(t, "node-0000", corev1.NodeGracefulNodeShutdownInProgress)
	heeds.awaitEvacuated("map[node-0000:GracefulNodeShutdownInProgress node-0003:MaintenanceInProgress]")
	awaitNodes(t, "all nodes as before", want)
	if got := others.evacuated(); got != "map[]" {
		t.Errorf("a proxy that does not heed conditions evacuates %s", got)
	}
	setConditions(t, "node-0000")
	heeds.awaitEvacuated("map[node-0003:MaintenanceInProgress]")

	// What its endpoints are is listed for a while after a Node went.
	api.Kubectl(t, "delete", "node", "node-0003")
	delete(want, "node-0003")
	awaitNodes(t, "one less", want)
	first.end()
	second := start(t, config, "two", withEvacuations)
	setConditions(t, "node-0001", corev1.NodeDrainInProgress)
	heeds.awaitEvacuated("map[node-0001:DrainInProgress node-0003:MaintenanceInProgress]")
	want["node-0003"] = createNodes(t, 3, 4)["node-0003"]
	heeds.awaitEvacuated("map[node-0001:DrainInProgress]")

	// Whoever takes over without evacuations takes them back.
	second.end()
	start(t, config, "three")
	heeds.awaitEvacuated("map[]")
	awaitNodes(t, "all nodes", want)
}

// TestAnOlderResourceDropsEvacuations: the publisher says so once, goes on with what the resource has room for, and does not
// write the same again and again.
func TestAnOlderResourceDropsEvacuations(t *testing.T) {
	config := install(t)
	t.Cleanup(func() { apply(t) })
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/nodes/items/properties/evacuated"
	_, err := api.Shell(context.WithoutCancel(t.Context()), `kubectl patch customresourcedefinition topologyslices.vicinity.dev --type json `+
		`--patch '[{"op": "remove", "path": "`+field+`"}]'`)
	must.Succeed(t, err)
	want := createNodes(t, 0, 3)
	setConditions(t, "node-0001", corev1.NodeDrainInProgress)
	publisher := start(t, config, "one", withEvacuations)
	awaitNodes(t, "all nodes", want)
	heeds := follow(t, asProxy(t), cluster.AutoTopology, withPublished)
	wait.Until(t, "a failure that is counted", func() bool { return publisher.seen.failed() > 0 })
	publisher.writes.Taken()
	for range 5 {
		api.Kubectl(t, "label", "node", "node-0002", fmt.Sprint("example.com/unused=", time.Now().UnixNano()), "--overwrite")
	}
	api.Kubectl(t, "label", "node", "node-0002", "topology.kubernetes.io/zone=zone-z", "--overwrite")
	want["node-0002"] = corev1.LabelTopologyZone + "=zone-z"
	awaitNodes(t, "another zone", want)
	if got := publisher.writes.Taken(); got != "map[update:1]" {
		t.Errorf("for another zone: %s", got)
	}
	if got := publisher.log.Count("older than this webhook"); got != 1 {
		t.Errorf("it is said %d times that the resource is older", got)
	}
	if got := heeds.evacuated(); got != "map[]" {
		t.Errorf("evacuated are %s", got)
	}
}
