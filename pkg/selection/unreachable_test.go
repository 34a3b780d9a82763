package selection

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestUnreachableEndpointsAreTheLastRank: in random scenarios with random nodes that are evacuated, unreachable or
// both, each choice equals that among the endpoints on reachable nodes or, if there are none, the choice if all were
// reachable. So unreachable nodes never make a choice empty, nothing is widened, and unreachable endpoints are never
// mixed with others.
func TestUnreachableEndpointsAreTheLastRank(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 7))
	seen := map[Code]int{}
	randomScenarios(numScenarios, func(s *scenario) {
		if t.Failed() {
			return
		}
		shared, nodes := map[string]*model.Demotion{}, map[string]*model.Demotion{}
		for _, node := range scenarioNodes[:4] {
			if random.IntN(4) == 0 {
				shared[node] = &model.Demotion{}
			}
			nodes[node] = shared[node]
			if node != "node-1" && random.IntN(2) == 0 { // this node always reaches itself
				nodes[node] = &model.Demotion{
					Reason: model.Unreachable, Since: time.Unix(1800000000, 0), Shared: shared[node], IsLasting: random.IntN(3) == 0,
				}
			}
		}
		without := withDemotedNodes(s.endpoints(), shared)
		marked := withDemotedNodes(s.endpoints(), nodes)
		reachable := slices.DeleteFunc(slices.Clone(marked), isUnreachable)
		got, want, allReachable := s.choose(marked), s.choose(reachable), s.choose(without)
		check := func(kind string, got, want, allReachable *Choice) {
			checkLastResort(t, kind, OnlyUnreachable, got, want, allReachable)
			seen[got.Reason.Code]++
		}
		check("cluster", &got.Cluster, &want.Cluster, &allReachable.Cluster)
		if got.Local != nil {
			check("local", got.Local, want.Local, allReachable.Local)
		}
		decision := Decision{Viewpoint: s.viewpoint, Service: &s.service, Endpoints: marked, Selection: got}
		for _, exclusion := range decision.Exclusions() {
			checkReason(t, exclusion.Reason)
			seen[exclusion.Reason.Code]++
			index := slices.IndexFunc(marked, func(endpoint model.PortEndpoint) bool { return endpoint.Addr == exclusion.Endpoint })
			if exclusion.Reason.Code == NodeUnreachable && !marked[index].IsUnreachable() {
				t.Errorf("the reason for %v is NodeUnreachable, but its node is reachable", marked[index])
			}
		}
		// Flows to unreachable endpoints end if there are others, and all other flows continue.
		before := Decision{Viewpoint: s.viewpoint, Service: &s.service, Endpoints: without, Selection: allReachable}
		if len(got.Cluster.Endpoints) > 0 && !got.Cluster.Endpoints[0].IsUnreachable() {
			before.Endpoints, before.Selection = reachable, want
		}
		cluster, local, open := decision.AllowedEndpoints()
		wantCluster, wantLocal, _ := before.AllowedEndpoints()
		if !slices.Equal(cluster, wantCluster) || !slices.Equal(local, wantLocal) {
			t.Errorf("allowed endpoints are %v, local %v, want %v and %v", cluster, local, wantCluster, wantLocal)
		}
		before.Endpoints, before.Selection = without, allReachable
		wantCluster, _, _ = before.AllowedEndpoints()
		wantOpen := slices.DeleteFunc(slices.Clone(wantCluster), func(addr netip.AddrPort) bool {
			index := slices.IndexFunc(marked, func(endpoint model.PortEndpoint) bool { return endpoint.Addr == addr })
			return slices.Contains(cluster, addr) || marked[index].Demotion.IsLasting
		})
		if !slices.Equal(sorted(open), sorted(wantOpen)) {
			t.Errorf("endpoints of open connections are %v, want %v", open, wantOpen)
		}
		if t.Failed() {
			t.Logf("demotions %v, scenario %+v", nodes, s)
		}
	})
	for _, code := range []Code{OnlyUnreachable, NodeUnreachable, OnlyEvacuated, NodeEvacuated, MatchedTopologyKey, AllEndpoints, OnThisNode} {
		if seen[code] < 5 {
			t.Errorf("%s occurred only %d times", code, seen[code])
		}
	}
}

// TestAPlanIgnoresUnreachableNodes: with any set of unreachable nodes, the plan under a bound is exactly the same. The
// choice is the plan without the slots on such nodes. If no slots remain, the keys choose among the endpoints on
// reachable nodes. If they match none, the choice is the plan as it is.
func TestAPlanIgnoresUnreachableNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 71))
	seen := map[string]int{}
	for range 3000 {
		keys := []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}[random.IntN(3):]
		if random.IntN(3) == 0 {
			keys = []policy.Key{policy.Zone}
		}
		nodes := []int{1 + random.IntN(3), 1 + random.IntN(3), 1 + random.IntN(3)}
		endpoints := []int{random.IntN(3), random.IntN(4), random.IntN(3)}
		setup := newBoundedSetup(bounded(100+uint64(random.IntN(100)), keys...), nodes, endpoints)
		if slice := setup.slice(); random.IntN(2) == 0 && endpoints[0] > 0 {
			slice.Endpoints = slice.Endpoints[1:] // the one on this node
		}
		setup.change.Services[setup.web].AffinityTimeout = time.Duration(random.IntN(2)) * time.Minute
		setup.change.Demotions = map[model.DemotionKey]*model.Demotion{}
		demote := func(reason model.DemotionReason, chances int) {
			for node := range setup.change.Nodes {
				if node != "zone-a-0" && random.IntN(chances) == 0 {
					setup.change.Demotions[model.DemotionKey{Node: node, Reason: reason}] = &model.Demotion{Reason: reason}
				}
			}
		}
		demote(model.Evacuated, 4)
		before := setup.decide(t, "zone-a-0").Selection.Cluster
		demote(model.Unreachable, 2)
		decision := setup.decide(t, "zone-a-0")
		after := decision.Selection.Cluster
		if !slices.Equal(before.record.slots, after.record.slots) || !reflect.DeepEqual(before.Share, after.Share) {
			t.Fatalf("the plan changed to %v from %v", after.record.slots, before.record.slots)
		}
		wantSlots, dropped := map[string]int{}, 0
		reachable := 0 // endpoints that are also allowed
		for i := range decision.Endpoints {
			endpoint := &decision.Endpoints[i]
			slots := after.record.slots[i]
			_, usable := endpoint.Rank()
			if usable && !endpoint.IsUnreachable() && decision.Viewpoint.allows(keys, endpoint) {
				reachable++
			}
			switch {
			case slots > 0 && endpoint.IsUnreachable():
				dropped++
			case slots > 0:
				wantSlots[endpoint.Addr.String()] = slots
			}
		}
		switch got := slotsOf(after); {
		case len(wantSlots) > 0:
			seen[fmt.Sprintf("dropped %v", dropped > 0)]++
			if !cmp.Equal(got, wantSlots) {
				t.Fatalf("slots %v, want %v", got, wantSlots)
			}
		case reachable > 0 && dropped > 0:
			seen["by keys"]++
			if len(after.Endpoints) == 0 || slices.ContainsFunc(after.Endpoints, isUnreachable) || after.Reason.Code == OnlyUnreachable {
				t.Fatalf("%d endpoints are reachable, but the choice is %v with reason %v", reachable, after.Endpoints, after.Reason)
			}
		case dropped > 0:
			seen["as planned"]++
			if !cmp.Equal(got, slotsOf(before)) || after.Reason.Code != OnlyUnreachable {
				t.Fatalf("no allowed endpoint is reachable: slots %v with reason %v, want %v", got, after.Reason, slotsOf(before))
			}
		}
		for _, stickyOnly := range after.StickyOnly {
			if stickyOnly.IsUnreachable() != after.Endpoints[0].IsUnreachable() {
				t.Fatalf("sticky-only endpoint %v, while %v serves", stickyOnly, after.Endpoints[0])
			}
		}
		for _, exclusion := range decision.Exclusions() {
			checkReason(t, exclusion.Reason)
		}
	}
	for _, kind := range []string{"dropped true", "dropped false", "by keys", "as planned"} {
		if seen[kind] < 20 {
			t.Errorf("%s occurred only %d times", kind, seen[kind])
		}
	}
	t.Log(seen)
}

// slotsOf returns the slots of a choice by endpoint.
func slotsOf(choice Choice) map[string]int {
	slots := map[string]int{}
	for i := range choice.Endpoints {
		slots[choice.Endpoints[i].Addr.String()] = 1
		if choice.Slots != nil {
			slots[choice.Endpoints[i].Addr.String()] = choice.Slots[i]
		}
	}
	return slots
}

func TestUnreachableEndpointsFollowEvacuatedOnes(t *testing.T) {
	setup := newBoundedSetup(policy.Topology{Keys: zoneThenAll}, []int{2, 2}, []int{2, 2})
	setup.change.Demotions = map[model.DemotionKey]*model.Demotion{
		{Node: "zone-a-0", Reason: model.Evacuated}:   {},
		{Node: "zone-a-1", Reason: model.Unreachable}: {Reason: model.Unreachable},
		{Node: "zone-b-0", Reason: model.Unreachable}: {Reason: model.Unreachable},
		{Node: "zone-b-1", Reason: model.Unreachable}: {Reason: model.Unreachable},
		{Node: "zone-b-1", Reason: model.Evacuated}:   {},
	}
	decision := setup.decide(t, "zone-a-0")
	if choice := decision.Selection.Cluster; choice.Reason.Code != OnlyEvacuated || choice.Endpoints[0].Node != "zone-a-0" {
		t.Errorf("choice is %v with reason %v", choice.Endpoints, choice.Reason)
	}
	for _, exclusion := range decision.Exclusions() {
		if exclusion.Reason.Code != NodeUnreachable {
			t.Errorf("%v is excluded with reason %v", exclusion.Endpoint, exclusion.Reason)
		}
	}
	if tiers := decision.Tiers(); len(tiers) < 2 || !tiers[len(tiers)-1].Endpoints[0].IsUnreachable() {
		t.Errorf("tiers %v: unreachable endpoints are not in the last tier", tiers)
	}
}

func sorted(addrs []netip.AddrPort) []netip.AddrPort {
	return slices.SortedFunc(slices.Values(addrs), netip.AddrPort.Compare)
}
