package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// fakeCluster is a Cache and the informers through which a test reports objects to it.
type fakeCluster struct {
	*Cache
	namespaces, nodes *controllertest.FakeInformer
}

// informersByKind returns the informer of each kind.
type informersByKind struct {
	cache.Informers
	informers map[string]*controllertest.FakeInformer
}

func (b informersByKind) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
		return nil, fmt.Errorf("%T is not PartialObjectMetadata", obj)
	}
	if found := b.informers[obj.GetObjectKind().GroupVersionKind().Kind]; found != nil {
		return found, nil
	}
	return nil, errNoInformer
}

var errNoInformer = errors.New("no such informer")

// newFakeCluster returns a cluster whose objects have not been listed.
func newFakeCluster(t *testing.T) fakeCluster {
	t.Helper()
	namespaces, nodes := controllertest.NewFakeInformer(), controllertest.NewFakeInformer()
	c, err := NewCache(t.Context(), informersByKind{informers: map[string]*controllertest.FakeInformer{"Namespace": namespaces,
		"Node": nodes}})
	if err != nil {
		t.Fatal(err)
	}
	c.namespaces.waitTimeout = 0
	return fakeCluster{c, namespaces, nodes}
}

// newListedCluster returns a cluster that is listed and empty.
func newListedCluster(t *testing.T) fakeCluster {
	t.Helper()
	c := newFakeCluster(t)
	c.namespaces.Synced()
	c.nodes.Synced()
	return c
}

func object(kind, name string, keysAndValues ...string) *metav1.PartialObjectMetadata {
	o := metadataOf(kind)
	o.Name = name
	for i := 0; i < len(keysAndValues); i += 2 {
		metav1.SetMetaDataLabel(&o.ObjectMeta, keysAndValues[i], keysAndValues[i+1])
	}
	return o
}

func inZone(name, zone string) *metav1.PartialObjectMetadata {
	return object("Node", name, string(policy.Zone), zone)
}

func TestCacheIsNotSyncedUntilAllKindsAreListed(t *testing.T) {
	c := newFakeCluster(t)
	c.nodes.Add(inZone("node-1", "a"))
	if c.HasSynced() || c.Nodes() != nil || c.Namespace("shop").IsLoaded {
		t.Errorf("synced %v, nodes %v, namespace %v", c.HasSynced(), c.Nodes(), c.Namespace("shop"))
	}
	c.nodes.Synced()
	if c.HasSynced() || c.Nodes() == nil || c.Nodes().Zones() != 1 {
		t.Errorf("with the Nodes: synced %v, nodes %v", c.HasSynced(), c.Nodes())
	}
	c.namespaces.Synced()
	if !c.HasSynced() {
		t.Error("not synced with both")
	}
}

func TestCacheIsNotSyncedWithoutNodes(t *testing.T) {
	c := newFakeCluster(t)
	c.namespaces.Synced()
	if c.HasSynced() || c.Nodes() != nil {
		t.Errorf("synced %v, nodes %v", c.HasSynced(), c.Nodes())
	}
}

func TestNamespaceIsCachedBeforeTheListIsComplete(t *testing.T) {
	c := newFakeCluster(t)
	c.Cache.namespaces.waitTimeout = time.Hour // no review waits before the list is complete
	c.namespaces.Add(object("Namespace", "shop"))
	if !c.Namespace("shop").IsLoaded || c.Namespace("other").IsLoaded {
		t.Errorf("shop %v, other %v", c.Namespace("shop"), c.Namespace("other"))
	}
}

func TestNamespaceFollowsChanges(t *testing.T) {
	c := newListedCluster(t)
	shop := object("Namespace", "shop", "team", "a")
	c.namespaces.Add(shop)
	want := rules.NamespaceDefaults{IsLoaded: true, Labels: map[string]string{"team": "a"}}
	if diff := cmp.Diff(want, c.Namespace("shop")); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	changed := object("Namespace", "shop")
	changed.Annotations = map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"}
	c.namespaces.Update(shop, changed)
	want = rules.NamespaceDefaults{IsLoaded: true, Annotations: map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"}}
	if diff := cmp.Diff(want, c.Namespace("shop")); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	c.namespaces.Delete(changed)
	if got := c.Namespace("shop"); got.IsLoaded {
		t.Errorf("deleted: %v", got)
	}
}

func TestNamespaceWaitsForANewNamespace(t *testing.T) {
	c := newListedCluster(t)
	c.Cache.namespaces.waitTimeout = time.Minute
	go func() {
		c.namespaces.Add(object("Namespace", "other"))
		c.namespaces.Add(object("Namespace", "shop"))
	}()
	if got := c.Namespace("shop"); !got.IsLoaded {
		t.Errorf("Namespace not loaded: %v", got)
	}
}

func TestNamespaceWaitTimesOut(t *testing.T) {
	c := newListedCluster(t)
	c.Cache.namespaces.waitTimeout = 20 * time.Millisecond
	start := time.Now()
	if got := c.Namespace("shop"); got.IsLoaded {
		t.Errorf("Namespace loaded: %v", got)
	}
	if took := time.Since(start); took < 20*time.Millisecond || took > 10*time.Second {
		t.Errorf("waited for %s", took)
	}
}

func TestWaitingReviewsAreLimited(t *testing.T) {
	c := newListedCluster(t)
	c.Cache.namespaces.waitTimeout = time.Hour
	waiting, results := c.Cache.namespaces.waiting, make(chan rules.NamespaceDefaults, maxWaiting)
	for range maxWaiting {
		go func() { results <- c.Namespace("shop") }()
	}
	wait.Until(t, "all reviews wait", func() bool { return len(waiting) == maxWaiting })
	if got := c.Namespace("other"); got.IsLoaded { // the call returns
		t.Errorf("Namespace loaded: %v", got)
	}
	c.namespaces.Add(object("Namespace", "shop"))
	for range maxWaiting {
		if got := <-results; !got.IsLoaded {
			t.Errorf("Namespace not loaded after waiting: %v", got)
		}
	}
	go c.namespaces.Add(object("Namespace", "other"))
	if got := c.Namespace("other"); !got.IsLoaded {
		t.Errorf("the review did not wait, although no other one does: %v", got)
	}
}

func TestNodeSnapshotFollowsChanges(t *testing.T) {
	c := newListedCluster(t)
	one := inZone("node-1", "a")
	c.nodes.Add(one)
	first := c.Nodes()
	c.nodes.Add(object("Node", "node-2", string(policy.Zone), "b", "rack", "r1"))
	if got := c.Nodes(); got.Zones() != 2 || !got.HasKey("rack") {
		t.Errorf("%d zones, racks %v", got.Zones(), got.HasKey("rack"))
	}
	moved := inZone("node-1", "b")
	c.nodes.Update(one, moved)
	if got := c.Nodes(); got.Zones() != 1 {
		t.Errorf("%d zones after a move", got.Zones())
	}
	c.nodes.Delete(moved)
	c.nodes.Delete(object("Node", "node-2"))
	if got := c.Nodes(); got.Zones() != 0 || got.HasKey("rack") {
		t.Errorf("%d zones, racks %v after all Nodes were deleted", got.Zones(), got.HasKey("rack"))
	}
	if first.Zones() != 1 || first.HasKey("rack") {
		t.Errorf("an earlier snapshot has changed: %d zones", first.Zones())
	}
}

func TestHeartbeatsReuseTheSnapshot(t *testing.T) {
	c := newListedCluster(t)
	original := inZone("node-1", "a")
	c.nodes.Add(original)
	snapshot := c.Nodes()
	heartbeat := inZone("node-1", "a")
	heartbeat.ResourceVersion = "2"
	c.nodes.Update(original, heartbeat)
	if c.Nodes() != snapshot {
		t.Error("a heartbeat created a new snapshot")
	}
	if allocations := testing.AllocsPerRun(100, func() { c.Nodes(); c.Cache.nodes.put(heartbeat) }); allocations > 0 {
		t.Errorf("%v allocations for a heartbeat and a read", allocations)
	}
}

func TestConcurrentReadsAndUpdates(t *testing.T) {
	c := newListedCluster(t)
	ctx, stop := context.WithCancel(t.Context())
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		for ctx.Err() == nil {
			if nodes := c.Nodes(); nodes.Zones() > 2 || c.Namespace("shop").IsLoaded && nodes == nil {
				t.Error("more than two zones, or no snapshot")
			}
		}
	}()
	for range 500 {
		c.nodes.Add(inZone("node-1", "a"))
		c.namespaces.Add(object("Namespace", "shop"))
		c.nodes.Add(inZone("node-1", "b"))
		c.nodes.Add(inZone("node-2", "a"))
		c.namespaces.Delete(object("Namespace", "shop"))
	}
	stop()
	<-readerDone
}

func TestKeepMetadataStripsObjects(t *testing.T) {
	full := object("Namespace", "shop", "team", "a")
	full.UID, full.ResourceVersion, full.Finalizers = types.UID("1"), "7", []string{"x"}
	full.Annotations = map[string]string{"example.com/much": strings.Repeat("x", 1000), policy.DefaultTopologyKeysAnnotation: "*"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	got, err := keepMetadata(full)
	if err != nil {
		t.Fatal(err)
	}
	want := object("Namespace", "shop", "team", "a")
	want.UID, want.ResourceVersion = full.UID, "7"
	want.Annotations = map[string]string{policy.DefaultTopologyKeysAnnotation: "*"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if _, err := keepMetadata(&corev1.Node{}); err == nil || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("a whole Node: %v", err)
	}
}

func TestNewCacheFailsWithoutInformer(t *testing.T) {
	namespaces := map[string]*controllertest.FakeInformer{"Namespace": controllertest.NewFakeInformer()}
	for kind, informers := range map[string]map[string]*controllertest.FakeInformer{"Namespaces": nil, "Nodes": namespaces} {
		_, err := NewCache(t.Context(), informersByKind{informers: informers})
		if !errors.Is(err, errNoInformer) || !strings.Contains(err.Error(), "watch metadata of "+kind) {
			t.Errorf("NewCache() = %v", err)
		}
	}
}

func TestTombstoneDeletesNode(t *testing.T) {
	nodes := newNodes()
	nodes.hasSynced = func() bool { return true }
	handler := handlerOf(nodes.put, nodes.delete)
	handler.OnAdd(inZone("node-1", "a"), true)
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "node-1", Obj: inZone("node-1", "a")})
	if got := nodes.snapshot().Zones(); got != 0 {
		t.Errorf("%d zones remain", got)
	}
}
