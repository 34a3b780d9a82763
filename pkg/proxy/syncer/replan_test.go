package syncer_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// boundedServices returns Services with a load bound and four endpoints each: one in the zone of three nodes, and three
// in the zone of the fourth node.
func boundedServices(count int) model.Change {
	change := manyServices(count, 4)
	for name, service := range change.Services {
		service.Topology = policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120}
		for i := range change.Slices[name].Endpoints {
			endpoint := &change.Slices[name].Endpoints[i]
			endpoint.Node, endpoint.Zone = "far", "zone-b"
			if i == 0 {
				endpoint.Node, endpoint.Zone = self, "zone-a"
			}
		}
	}
	change.AllNodes = new(true)
	return change.Merge(nodesIn("zone-a", self, "near-1", "near-2")).Merge(nodesIn("zone-b", "far"))
}

func nodesIn(zone string, names ...string) model.Change {
	change := model.Change{Nodes: map[string]*model.Node{}}
	for _, name := range names {
		change.Nodes[name] = &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): zone}}
	}
	return change
}

// TestNewNodesAreBatched: the first new node affects all Services with a load bound at once. Further ones do so
// together after replanInterval, and no change of endpoints waits for that.
func TestNewNodesAreBatched(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		everything := boundedServices(5).Merge(manyServices(1, 2))
		send := func(change model.Change) {
			everything = everything.Merge(change)
			r.changes <- change
		}
		r.changes <- everything
		r.expect("the first change", attempt{Full: true, Services: 5})
		r.advance(time.Minute)
		send(nodesIn("zone-b", "new-0"))
		r.expect("a node is added", attempt{At: time.Minute, Services: 4})
		checkLikeFreshStart(r.t, &r.kernel.memoryKernel, everything)
		for n := range 10 {
			r.advance(100 * time.Millisecond)
			send(nodesIn("zone-b", fmt.Sprintf("new-%d", n+1)))
		}
		synctest.Wait()
		for i, sync := range r.take() {
			if sync.Services > 0 {
				t := time.Minute + time.Duration(i+1)*100*time.Millisecond
				r.t.Errorf("at %s, %d Services are replanned", t, sync.Services)
			}
		}
		send(resized(3))
		r.expect("endpoints change in between", attempt{At: time.Minute + time.Second, Services: 1})
		r.advance(syncer.ReplanInterval)
		r.expect("after the interval", attempt{At: time.Minute + syncer.ReplanInterval, Services: 4})
		checkLikeFreshStart(r.t, &r.kernel.memoryKernel, everything)
		r.advance(time.Hour)
		r.expect("after that")
	})
}

// TestALargeServiceIsReplannedInSteps: the changes that a new node causes are written in transactions of a bounded
// size, even during a stream of other changes.
func TestALargeServiceIsReplannedInSteps(t *testing.T) {
	const size = 4*syncer.MaxBatchWeight - 100
	large := largeService("large", netip.MustParseAddr("10.96.200.1"), size)
	for name, service := range large.Services {
		service.Topology = policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 100}
		for i := range large.Slices[name].Endpoints {
			// A third of the endpoints is in the zone of three nodes out of four: within the bound these nodes cannot keep all
			// of their demand there.
			if large.Slices[name].Endpoints[i].Zone = "zone-b"; i%3 == 0 {
				large.Slices[name].Endpoints[i].Zone = "zone-a"
			}
		}
	}
	kernel := &memoryKernel{}
	p := newProxy(kernel)
	everything := manyServices(3, 2).Merge(large).Merge(nodesIn("zone-a", self, "near-1", "near-2")).Merge(nodesIn("zone-b", "far"))
	everything.AllNodes = new(true)
	p.Apply(everything)
	mustSync(t, p)
	kernel.batches = nil
	// Most demand is in the other zone now, so that all connections of this zone stay near.
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("new-%d", i))
	}
	node := nodesIn("zone-b", names...)
	p.Apply(node)
	syncs := 0
	for ; ; syncs++ {
		change := resized(2 + syncs%3)
		everything = everything.Merge(change)
		p.Apply(change)
		p.AllowLarge()
		mustSync(t, p)
		if !p.Waits() {
			break
		}
		if syncs > 100 {
			t.Fatal("the large Service waits forever while others change")
		}
	}
	if largest := kernel.largestBatch(); largest > 2*syncer.MaxBatchWeight || syncs < 2 {
		t.Errorf("it was written in %d syncs, the largest of %d elements", syncs+1, largest)
	}
	checkLikeFreshStart(t, kernel, everything.Merge(node))
}

// TestEndpointsChangeBeforeSharesDo: while very many Services are replanned in batches, a change of endpoints is in the
// next sync.
func TestEndpointsChangeBeforeSharesDo(t *testing.T) {
	kernel := &memoryKernel{}
	p := newProxy(kernel)
	everything := boundedServices(1000)
	p.Apply(everything)
	mustSync(t, p)
	node := nodesIn("zone-b", "new")
	p.Apply(node)
	syncs := 0
	for ; ; syncs++ {
		change := resized(2 + syncs%3)
		p.Apply(change)
		everything = everything.Merge(change)
		mustSync(t, p)
		alone := boundedServices(1).Merge(node).Merge(change)
		if got, want := kernel.slotsFor(t, "10.96.0.0"), freshSlotsFor(t, alone, "10.96.0.0"); got != want {
			t.Fatalf("after %d syncs there are %d slots, want %d", syncs+1, got, want)
		}
		if !p.Waits() {
			break
		}
	}
	if syncs < 3 {
		t.Errorf("all Services were replanned in %d syncs, want several batches", syncs+1)
	}
	checkLikeFreshStart(t, kernel, everything.Merge(node))
}

func freshSlotsFor(t *testing.T, everything model.Change, addr string) int {
	t.Helper()
	kernel := &memoryKernel{}
	p := newProxy(kernel)
	p.Apply(everything)
	mustSync(t, p)
	return kernel.slotsFor(t, addr)
}

// TestServicesWithoutABoundDoNotReadNodes: a new node affects only Services with a bound.
func TestServicesWithoutABoundDoNotReadNodes(t *testing.T) {
	p := newSyncedProxy(t, &memoryKernel{})
	p.Apply(nodesIn("zone-b", "new"))
	if report := mustSync(t, p); report.Decided != 0 {
		t.Errorf("%d Services were decided, want none", report.Decided)
	}
}
