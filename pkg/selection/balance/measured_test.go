package balance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// placements are distributions of clients, as the demand of each node. In all but the first, clients concentrate in the
// second zone.
var placements = []struct {
	name string
	asks func(zone, i int) uint32
}{
	{"as assumed", func(int, int) uint32 { return 100 }},
	{"one zone 80 %", nil}, // depends on the sizes of zones: see skewedDemand
	{"one zone", func(zone, _ int) uint32 { return map[int]uint32{1: 100}[zone] }},
}

// skewedDemand returns the demand of a node in a zone if 80 % of all demand is in the second zone.
func skewedDemand(nodes []int, zone int) uint32 {
	all := 0
	for _, count := range nodes {
		all += count
	}
	if zone == 1 {
		return uint32(800_000 / nodes[1])
	}
	return uint32(200_000 / (all - nodes[1]))
}

// TestBoundHoldsForMeasuredClients: seven shapes of clusters and three placements of clients, planned with the zones'
// measured demand. No endpoint gets more than the bound plus the rounding error of slots, and as much stays near as any
// plan could keep there.
func TestBoundHoldsForMeasuredClients(t *testing.T) {
	for _, keys := range [][]policy.Key{{policy.Zone, policy.AnyNode}, {policy.Hostname, policy.Zone, policy.AnyNode}} {
		for _, example := range shapes {
			for _, placement := range placements {
				s := shape(example.nodes, example.endpoints, keys...)
				s.measured, s.clients = true, map[string]uint32{}
				for zone, count := range example.nodes {
					for i := range count {
						demand := func(zone, _ int) uint32 { return skewedDemand(example.nodes, zone) }
						if placement.asks != nil {
							demand = placement.asks
						}
						s.clients[nodeIn(zone, i)] = demand(zone, i)
					}
				}
				p := s.problems()[0]
				got, n := s.outcome(&p, slotsAt, s.rows()), int64(len(p.endpoints))
				best := p.maxPlaced(len(keys), 100*n, int64(s.limit)*p.total)
				for k := range keys {
					if near := float64(best[k]) / float64(100*n*p.total); math.Abs(got.sums[k]-near) > 0.01 {
						t.Errorf("%v %s, %s: a fraction of %.3f is placed up to key %d, want %.3f", keys, example.name, placement.name, got.sums[k], k, near)
					}
				}
				if got.busiest > 1.25 {
					t.Errorf("%v %s, %s: the busiest endpoint has %.3f times the mean load", keys, example.name, placement.name, got.busiest)
				}
			}
		}
	}
}

func measuredClasses() *balance.NodeClasses {
	classes := balance.NewNodeClasses([]policy.Key{policy.AnyNode, policy.Zone}, "a1")
	for _, node := range []string{"a1", "a2", "a3", "b1", "b2", "x1"} {
		labels := map[string]string{string(policy.Zone): node[:1]}
		if node == "x1" {
			labels = nil
		}
		classes.Set(node, labels)
	}
	return classes
}

// TestMeasuredZones: zones that do not exist make no difference.
func TestMeasuredZones(t *testing.T) {
	type demandByZone = map[string]uint32
	for name, c := range map[string]struct {
		zones demandByZone
		want  string // per mille, by zone
	}{
		"all zones":             {demandByZone{"a": 2, "b": 2}, "a 500, b 500,  0"},
		"an unknown zone":       {demandByZone{"a": 2, "b": 2, "gone": 9}, "a 500, b 500,  0"},
		"a zone without demand": {demandByZone{"a": 2}, "a 1000, b 0,  0"},
		"nodes without a zone":  {demandByZone{"a": 1, "": 3}, "a 250, b 0,  750"},
	} {
		demand, hasDemand := measuredClasses().Measured(&model.Demand{Zones: c.zones})
		if !hasDemand {
			t.Errorf("%s: no demand", name)
			continue
		}
		zones := demand.Zones()
		sum := zones["a"] + zones["b"] + zones[""]
		var texts []string
		for _, zone := range []string{"a", "b", ""} {
			texts = append(texts, fmt.Sprint(zone, " ", (zones[zone]*1000+sum/2)/sum))
		}
		if got := strings.Join(texts, ", "); got != c.want || sum < 1<<30-8 || sum > 1<<30 {
			t.Errorf("%s: demand is %s of %d, want %s", name, got, sum, c.want)
		}
	}
	for name, zones := range map[string]demandByZone{"no zones": nil, "unknown zones": {"gone": 9}, "zeros": {"a": 0, "b": 0}} {
		if _, hasDemand := measuredClasses().Measured(&model.Demand{Zones: zones}); hasDemand {
			t.Errorf("%s: Measured reports demand, want none", name)
		}
	}
	if got := measuredClasses().ByLabels().Zones(); got["a"] != 3 || got["b"] != 2 || got[""] != 1 {
		t.Errorf("demand of zones by labels is %v", got)
	}
}

// TestLoadsUnderAnotherDemand: under a demand that a plan was not computed for, the load of an endpoint is the sum of
// what the nodes send to it.
func TestLoadsUnderAnotherDemand(t *testing.T) {
	numOverloaded := 0
	measuredScenarios(t, 300, func(s *scenario, _ *rand.Rand) {
		assumed := *s
		assumed.measured, assumed.clients = false, nil
		classes := s.nodeClasses("")
		plan := balance.NewPlan(classes.ByLabels(), balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf), s.limit)
		actual, planned := plan.LoadsUnder(s.demand(classes)), plan.Loads()
		rows := assumed.rows()
		for _, p := range s.problems() {
			loads := s.outcome(&p, fractionAt, rows).loads
			for j, i := range p.endpoints {
				if p.total > int64(len(p.nodes)) && math.Abs(float64(actual[i])-1000*loads[j]) > 1 {
					t.Errorf("endpoint %d has %d per mille of the mean load, want %f", i, actual[i], 1000*loads[j])
				}
				if actual[i] > 2*planned[i].Bounded {
					numOverloaded++
				}
			}
		}
	})
	if numOverloaded < 100 {
		t.Errorf("only %d endpoints have more than twice their planned load, want at least 100", numOverloaded)
	}
}
