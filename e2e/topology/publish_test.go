package topology_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestAllNodesArePublishedAndWhatChangesIsWrittenOnce also checks that nothing else is written.
func TestAllNodesArePublishedAndWhatChangesIsWrittenOnce(t *testing.T) {
	config := install(t)
	want := createNodes(t, 0, 250)
	first := startPublisher(t, config, "one")
	waitForNodes(t, "all nodes", want)
	wait.Equal(t, "writes reported to the observer", "map[create:3]", first.observer.writtenText)
	if got := first.writes.Take(); got != "map[create:3]" {
		t.Errorf("writes for 250 nodes: %s, want map[create:3]", got)
	}
	wait.Success(t, "the Lease", func() error {
		lease, err := api.Admin.CoordinationV1().Leases(namespace).Get(t.Context(), v1alpha1.TopologyLeaseName, metav1.GetOptions{})
		if err == nil && (lease.Spec.RenewTime == nil || *lease.Spec.HolderIdentity != "one") {
			err = fmt.Errorf("Lease has %+v", lease.Spec)
		}
		return err
	})

	api.Kubectl(t, "label", "node", "node-0007", "topology.kubernetes.io/zone=zone-z", "--overwrite")
	api.Kubectl(t, "label", "node", "node-0008", "example.com/unused=1")
	want["node-0007"] = corev1.LabelTopologyZone + "=zone-z"
	waitForNodes(t, "another zone", want)
	if got := first.writes.Take(); got != "map[update:1]" {
		t.Errorf("writes for another zone and an unused label: %s, want map[update:1]", got)
	}
	maps.Copy(want, createNodes(t, 250, 252))
	waitForNodes(t, "two nodes added", want)
	api.Kubectl(t, "delete", "node", "node-0100")
	delete(want, "node-0100")
	waitForNodes(t, "one node removed", want)
	if got := first.writes.Take(); strings.Contains(got, "create") || strings.Contains(got, "delete") {
		t.Errorf("writes for two nodes added and one removed: %s, want only updates", got)
	}

	// If a Service uses a label, it is published for all nodes.
	createServiceWithKeys(t, "racked", rack+", *")
	for name := range want {
		var i int
		_, err := fmt.Sscanf(name, "node-%d", &i)
		must.Succeed(t, err)
		want[name] = fmt.Sprintf("%s=rack-%d %s", rack, i/10, want[name])
	}
	waitForNodes(t, "with racks", want)
	if got := first.writes.Take(); got != "map[update:3]" {
		t.Errorf("writes for another key: %s, want map[update:3]", got)
	}

	// A deleted slice is created again.
	_, versions := published(t)
	for name := range versions {
		api.Kubectl(t, "delete", "topologyslice", name)
		break
	}
	waitForNodes(t, "after a slice was deleted manually", want)

	// Another publisher takes over. It writes nothing, because nothing changed.
	second := startPublisher(t, config, "two")
	_, before := published(t)
	first.end()
	wait.Equal(t, "holder of the Lease", "two", func() string {
		lease, err := api.Admin.CoordinationV1().Leases(namespace).Get(t.Context(), v1alpha1.TopologyLeaseName, metav1.GetOptions{})
		must.Succeed(t, err)
		return *lease.Spec.HolderIdentity
	})
	if _, after := published(t); !maps.Equal(before, after) || second.writes.All() != "map[]" {
		t.Errorf("the next leader wrote slices: versions %v, before %v", after, before)
	}
	api.Kubectl(t, "label", "node", "node-0007", "topology.kubernetes.io/zone=zone-a", "--overwrite")
	want["node-0007"] = strings.Replace(want["node-0007"], "zone-z", "zone-a", 1)
	waitForNodes(t, "another zone, written by the next leader", want)
	if got := second.writes.Take(); got != "map[update:1]" {
		t.Errorf("writes of the next leader for another zone: %s, want map[update:1]", got)
	}
	if first.observer.failed()+second.observer.failed() > 0 {
		t.Errorf("%d and %d rounds failed, want none", first.observer.failed(), second.observer.failed())
	}
}

// TestTheAdministratorsKeysAreAlwaysPublished exhausts all slots with tenants' keys that nodes have. A further key
// waits, unless the webhook's own Namespace lists it.
func TestTheAdministratorsKeysAreAlwaysPublished(t *testing.T) {
	config := install(t)
	const tenants = v1alpha1.MaxKeys // some slots are always taken
	labels := map[string]string{rack: "rack-1"}
	name := func(tenant int) string { return fmt.Sprintf("tenant-%02d", tenant) }
	for i := range tenants {
		labels["example.com/"+name(i)] = "1"
	}
	_, err := api.Admin.CoreV1().Nodes().Create(t.Context(), nodeOf("node-0000", "zone-a", labels), metav1.CreateOptions{})
	must.Succeed(t, err)
	t.Cleanup(func() { // no controller finalizes deleted Namespaces here
		_, err := api.Shell(context.WithoutCancel(t.Context()), "kubectl annotate namespaces --all "+policy.DefaultTopologyKeysAnnotation+"-")
		must.Succeed(t, err)
	})
	for i := range tenants {
		tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name(i), Annotations: map[string]string{policy.DefaultTopologyKeysAnnotation: "example.com/" + name(i)},
		}}
		_, err := api.Admin.CoreV1().Namespaces().Create(t.Context(), tenant, metav1.CreateOptions{})
		must.Succeed(t, err)
	}
	has := func(key string) bool {
		nodes, _ := published(t)
		return strings.Contains(nodes["node-0000"], key+"=")
	}
	startPublisher(t, config, "one")
	wait.Equal(t, "the first tenant's key", true, func() bool { return has("example.com/" + name(0)) })
	if last := name(tenants - 1); has("example.com/" + last) {
		t.Errorf("the key of %s is published, although all slots are used", last)
	}
	api.Kubectl(t, "annotate", "namespace", namespace, policy.DefaultTopologyKeysAnnotation+"="+rack)
	wait.Equal(t, "the administrator's key", true, func() bool { return has(rack) })
}
