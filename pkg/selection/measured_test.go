package selection

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// TestPlansUseActiveMeasuredDemand: a Service that requests measured demand is replanned when new demand is
// measured. It is planned with assumed demand if none is measured or the measurement is stale.
func TestPlansUseActiveMeasuredDemand(t *testing.T) {
	for name, keys := range map[string][]policy.Key{
		"zone among the keys": zoneThenAll, "only any node": {"example.com/none", policy.AnyNode},
	} {
		t.Run(name, func(t *testing.T) {
			topology := bounded(120, keys...)
			topology.Measured = true
			setup := newBoundedSetup(topology, []int{3, 3, 3}, []int{4, 4, 3})
			cluster := model.NewCluster("zone-b-0")
			cluster.Apply(setup.change)
			planner := NewPlanner(cluster)
			decideAndApply := func() Choice {
				t.Helper()
				decisions := planner.Decide(setup.web, []model.Family{model.IPv4})
				planner.OnApplied(setup.web, planner.Derive(decisions))
				return decisions[0].Selection.Cluster
			}
			expectSource := func(want balance.Source) Choice {
				t.Helper()
				choice := decideAndApply()
				if choice.record.source != want || choice.Share.Source != want {
					t.Errorf("planned with %s, want %s", choice.record.source, want)
				}
				var shares Shares
				if shares.Add(Plans{choice.record}, 1); shares.BySource[want] != 1 {
					t.Errorf("ports by source are %v, want one in the source of the plan", shares.BySource)
				}
				return choice
			}
			apply := func(change model.Change) {
				t.Helper()
				cluster.TakeStale()
				if dirty := cluster.Apply(change); len(dirty) > 0 {
					t.Errorf("Apply returned %v, want none before TakeStale", dirty)
				}
				planner.ApplyChange(change)
			}
			expectStale := func() {
				t.Helper()
				if stale := cluster.TakeStale(); !slices.Equal(stale, []model.ObjectName{setup.web}) {
					t.Errorf("stale Services are %v, want only the bounded one", stale)
				}
				if differs, weight := planner.NeedsReplan(setup.web); !differs || weight < 1 {
					t.Errorf("NeedsReplan returned %t, want true with a weight of at least 1", differs)
				}
			}
			demand := &model.Demand{Zones: map[string]uint32{"zone-a": 100_000, "zone-b": 900_000}}
			assumed := expectSource(balance.Labels)
			apply(model.Change{Demands: map[model.ObjectName]*model.Demand{setup.web: demand}})
			if differs, _ := planner.NeedsReplan(setup.web); differs {
				t.Error("NeedsReplan is true for demand that is not active")
			}
			expectSource(balance.Labels)

			active, stale := model.DemandActive, model.DemandStale
			apply(model.Change{DemandState: &active})
			expectStale()
			measured := expectSource(balance.Measurement)
			if keys[0] == policy.Zone && !strings.Contains(measured.Reason.Sentence(), "4 of 11 endpoints are there for 90.0 % of the demand") {
				t.Errorf("reason is %s", measured.Reason.Sentence())
			}
			if keys[0] == policy.Zone && slices.Equal(measured.Slots, assumed.Slots) {
				t.Errorf("measured demand does not change the slots: %v", measured.Slots)
			}
			apply(model.Change{Demands: map[model.ObjectName]*model.Demand{{Namespace: "shop", Name: "other"}: demand}})
			if stale := cluster.TakeStale(); len(stale) > 0 {
				t.Errorf("stale Services are %v after another Service's demand changed", stale)
			}
			if differs, _ := planner.NeedsReplan(setup.web); differs {
				t.Error("NeedsReplan is true although nothing changed")
			}
			if weight := planner.PlanWeight(setup.web); weight > 2 {
				t.Errorf("the weight of a plan for nine nodes is %d, want at most 2", weight)
			}

			apply(model.Change{DemandState: &stale})
			expectStale()
			if again := expectSource(balance.Labels); !slices.Equal(again.Slots, assumed.Slots) {
				t.Errorf("slots are %v after the demand became stale, want %v", again.Slots, assumed.Slots)
			}
			apply(model.Change{DemandState: &active})
			expectSource(balance.Measurement)
			apply(model.Change{Demands: map[model.ObjectName]*model.Demand{setup.web: nil}})
			expectStale()
			expectSource(balance.Labels)
		})
	}
}

// TestMeasuredLoads: the loads include the demand of zones, and the expected loads of endpoints with assumed demand.
func TestMeasuredLoads(t *testing.T) {
	for name, clients := range map[string][]string{"by labels": nil, "by clients": {"shop/client"}} {
		topology := bounded(120, zoneThenAll...)
		topology.Measured, topology.Clients = true, clients
		setup := newBoundedSetup(topology, []int{3, 3, 3}, []int{4, 4, 3})
		active := model.DemandActive
		setup.change.Demands = map[model.ObjectName]*model.Demand{setup.web: {Zones: map[string]uint32{"zone-a": 100_000, "zone-b": 900_000}}}
		setup.change.DemandState = &active
		cluster := model.NewCluster("zone-b-0")
		cluster.Apply(setup.change)
		planner := NewPlanner(cluster)
		loads, planned := planner.Loads(planner.Decide(setup.web, []model.Family{model.IPv4})[0])
		if !planned || loads.Source != balance.Measurement || loads.Measured == nil {
			t.Fatalf("%s: %+v", name, loads)
		}
		m := loads.Measured
		if index := m.AssumedBusiest(); m.AssumedLoads[index] < 2475 || m.AssumedLoads[index] > 2800 || index < 4 || index > 7 {
			t.Errorf("%s: endpoint %d would have load %d", name, index, m.AssumedLoads[index])
		}
		if m.Zones["zone-b"] < 0.8999 || m.Zones["zone-b"] > 0.9001 || m.Zones["zone-c"] != 0 || m.AssumedZones["zone-c"] != 1./3 {
			t.Errorf("%s: demand of zones is %v, assumed %v", name, m.Zones, m.AssumedZones)
		}
		for i, load := range loads.Endpoints {
			if load.Bounded > 1201 {
				t.Errorf("%s: endpoint %d has load %d", name, i, load.Bounded)
			}
		}
	}
}

// TestPlansDoNotDependOnHistory: nodes are added, removed, and moved to another, an empty or no zone. Demand is
// measured for any zones, including those without nodes, and is active or stale. A planner with such a history decides
// like a new one, and NeedsReplan returns true whenever the slots change.
func TestPlansDoNotDependOnHistory(t *testing.T) {
	for seed, keys := range [][]policy.Key{
		zoneThenAll, {policy.Hostname, policy.Zone, policy.AnyNode}, {policy.Hostname, policy.AnyNode}, {"example.com/none", policy.AnyNode},
	} {
		topology, random := bounded(120, keys...), rand.New(rand.NewPCG(uint64(seed), 37))
		topology.Measured = true
		setup := newBoundedSetup(topology, []int{3, 3, 3}, []int{4, 4, 3})
		cluster, history := model.NewCluster("zone-b-0"), model.Change{}
		planner, slots := NewPlanner(cluster), ""
		for step, change := range append([]model.Change{setup.change}, setup.randomChanges(random, 200)...) {
			cluster.Apply(change)
			planner.ApplyChange(change)
			if random.IntN(8) == 0 {
				planner.Prune()
			}
			history = history.Merge(change)
			fresh := model.NewCluster("zone-b-0")
			fresh.Apply(history)
			_, changesSelf := change.Nodes["zone-b-0"]
			differs, _ := planner.NeedsReplan(setup.web)
			got, planned := setup.decideAll(planner)
			if want, _ := setup.decideAll(NewPlanner(fresh)); got != want {
				t.Fatalf("%v, event %d: the planner decides\n%s, a new one\n%s", keys, step, got, want)
			}
			if planned != slots && !differs && !changesSelf {
				t.Errorf("%v, event %d: slots changed from %s to %s, but NeedsReplan was false", keys, step, slots, planned)
			}
			slots = planned
		}
	}
}

// randomChanges returns random changes of nodes and demand.
func (s *boundedSetup) randomChanges(random *rand.Rand, count int) []model.Change {
	zones := []string{"zone-a", "zone-b", "zone-c", "zone-gone", "", "no label"}
	node := func() string { return fmt.Sprintf("zone-%c-%d", 'a'+rune(random.IntN(4)), random.IntN(5)) }
	states := []model.DemandState{model.DemandActive, model.DemandActive, model.DemandActive, model.DemandStale}
	var changes []model.Change
	for range count {
		switch random.IntN(6) {
		case 0:
			if name := node(); name != "zone-b-0" { // this node's labels still apply after its object is deleted
				changes = append(changes, model.Change{Nodes: map[string]*model.Node{name: nil}})
			}
		case 1, 2:
			name, labels := node(), map[string]string{}
			if zone := zones[random.IntN(len(zones))]; zone != "no label" {
				labels[string(policy.Zone)] = zone
			}
			changes = append(changes, model.Change{Nodes: map[string]*model.Node{name: {Name: name, Labels: labels}}})
		case 3, 4:
			demand := &model.Demand{Zones: map[string]uint32{}}
			for range random.IntN(5) {
				demand.Zones[zones[random.IntN(5)]] = []uint32{0, 1, 1000, 500_000}[random.IntN(4)]
			}
			changes = append(changes, model.Change{Demands: map[model.ObjectName]*model.Demand{s.web: demand}})
		case 5:
			changes = append(changes, model.Change{DemandState: &states[random.IntN(4)]})
		}
	}
	return changes
}

// decideAll returns everything that a planner decides, and separately the slots in its plan.
func (s *boundedSetup) decideAll(planner *Planner) (all, slots string) {
	decisions := planner.Decide(s.web, []model.Family{model.IPv4})
	planner.OnApplied(s.web, planner.Derive(decisions))
	choice := decisions[0].Selection.Cluster
	loads, _ := planner.Loads(decisions[0])
	return fmt.Sprint(choice.record.slots, choice.Slots, choice.record.source, choice.Reason.Sentence(), loads.Endpoints),
		fmt.Sprint(choice.record.slots)
}
