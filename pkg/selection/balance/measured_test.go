package balance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

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
func measuredDemand(nodes []int, zone int) uint32 {
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
func TestTheBoundHoldsForTheClientsThatAreThere(t *testing.T) {
	for _, keys := range [][]policy.Key{{policy.Zone, policy.AnyNode}, {policy.Hostname, policy.Zone, policy.AnyNode}} {
		for _, shape7 := range shapes {
			for _, placement := range placements {
				w := shape(shape7.nodes, shape7.endpoints, keys...)
				w.measured, w.clients = true, map[string]uint32{}
				for zone, count := range shape7.nodes {
					for i := range count {
						demand := func(zone, _ int) uint32 { return measuredDemand(shape7.nodes, zone) }
						if placement.asks != nil {
							demand = placement.asks
						}
						w.clients[nodeIn(zone, i)] = demand(zone, i)
					}
				}
				p := w.problems()[0]
				got, n := w.outcome(&p, bySlots, w.rows()), int64(len(p.endpoints))
				best := p.best(len(keys), 100*n, int64(w.limit)*p.total)
				for k := range keys {
					if near := float64(best[k]) / float64(100*n*p.total); math.Abs(got.sums[k]-near) > 0.01 {
						t.Errorf("%v %s, %s: a fraction of %.3f is placed up to key %d, want %.3f", keys, shape7.name, placement.name, got.sums[k], k, near)
					}
				}
				if got.busiest > 1.25 {
					t.Errorf("%v %s, %s: the busiest endpoint has %.3f times the mean load", keys, shape7.name, placement.name, got.busiest)
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
	type asks = map[string]uint32
	for name, c := range map[string]struct {
		zones asks
		want  string // per mille, by zone
	}{
		"all zones":             {asks{"a": 2, "b": 2}, "a 500, b 500,  0"},
		"an unknown zone":       {asks{"a": 2, "b": 2, "gone": 9}, "a 500, b 500,  0"},
		"a zone without demand": {asks{"a": 2}, "a 1000, b 0,  0"},
		"nodes without a zone":  {asks{"a": 1, "": 3}, "a 250, b 0,  750"},
	} {
		demand, any := measuredClasses().Measured(c.zones)
		if !any {
			t.Errorf("%s: no demand", name)
			continue
		}
		zones := demand.Zones()
		sum := zones["a"] + zones["b"] + zones[""]
		var words []string
		for _, zone := range []string{"a", "b", ""} {
			words = append(words, fmt.Sprint(zone, " ", (zones[zone]*1000+sum/2)/sum))
		}
		if got := strings.Join(words, ", "); got != c.want || sum < 1<<30-8 || sum > 1<<30 {
			t.Errorf("%s: demand is %s of %d, want %s", name, got, sum, c.want)
		}
	}
	for name, zones := range map[string]asks{"no zones": nil, "unknown zones": {"gone": 9}, "zeros": {"a": 0, "b": 0}} {
		if _, any := measuredClasses().Measured(zones); any {
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
	differ := 0
	measuredWorlds(t, 300, func(w *world, _ *rand.Rand) {
		assumed := *w
		assumed.measured, assumed.clients = false, nil
		classes := w.nodeClasses("")
		plan := balance.NewPlan(classes.ByLabels(), balance.NewEndpointClasses(w.keys, w.endpoints, w.valueOf), w.limit)
		under, expected := plan.LoadsUnder(w.demand(classes)), plan.Loads()
		rows := assumed.rows()
		for _, p := range w.problems() {
			loads := w.outcome(&p, byParts, rows).loads
			for j, i := range p.endpoints {
				if p.total > int64(len(p.nodes)) && math.Abs(float64(under[i])-1000*loads[j]) > 1 {
					t.Errorf("endpoint %d has %d per mille of the mean load, want %f", i, under[i], 1000*loads[j])
				}
				if under[i] > 2*expected[i].Bounded {
					differ++
				}
			}
		}
	})
	if differ < 100 {
		t.Errorf("only %d endpoints have more than twice their planned load, want at least 100", differ)
	}
}
