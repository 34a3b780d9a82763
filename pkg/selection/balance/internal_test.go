package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestNodeClassesFreeMemory: labels whose values change for years need no more memory than the current ones.
func TestNodeClassesFreeMemory(t *testing.T) {
	keys := []policy.Key{policy.Hostname, policy.Zone, policy.Region, policy.AnyNode}
	classes, random := NewNodeClasses(keys, "n0"), rand.New(rand.NewPCG(1, 1))
	for i := range 5000 {
		name := fmt.Sprint("n", random.IntN(20))
		if random.IntN(4) == 0 {
			classes.Remove(name)
			continue
		}
		classes.Set(name, map[string]string{string(policy.Zone): fmt.Sprint(i), string(policy.Region): fmt.Sprint(i % 7)})
	}
	zones, regions := &classes.interners[1], &classes.interners[2]
	if len(classes.classes) > 21 || len(zones.strings) > 21 || len(regions.strings) > 7 {
		t.Errorf("%d classes, %d zones and %d regions are kept for 20 nodes", len(classes.classes), len(zones.strings), len(regions.strings))
	}
	for i := range 20 {
		classes.Remove(fmt.Sprint("n", i))
	}
	if remaining := len(classes.index) + len(classes.nodes) + len(zones.numbers) + len(regions.numbers); remaining > 0 {
		t.Errorf("%d entries are left after all nodes were removed", remaining)
	}
	if classes.selfPrefix != (sums{}) {
		t.Errorf("selfPrefix is %+v after the node was removed, want zero", classes.selfPrefix)
	}
}

// TestOffsetsOfSimilarNodes: the offsets of nodes that host equally many endpoints are evenly spaced by
// demand, and so are those of the other nodes in the class.
func TestOffsetsOfSimilarNodes(t *testing.T) {
	keys := []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}
	classes := NewNodeClasses(keys, "n3")
	for i := range 10 {
		classes.Set(fmt.Sprint("n", i), map[string]string{string(policy.Zone): "a", policy.DemandLabel: []string{"1", "3"}[i%2]})
	}
	classes.Set("m", map[string]string{string(policy.Zone): "b"})
	clients := map[string]uint32{"n0": 1, "n1": 3, "n2": 1, "n3": 3, "n7": 3, "n9": 3, "m": 1}
	for _, demand := range []Demand{classes.ByLabels(), classes.Named(clients)} {
		// n1, n2 and n5 host one endpoint, n8 hosts two.
		plan := Plan{demand: demand, endpointClasses: &EndpointClasses{keys: keys, firstGroup: []int32{0, 4, 4, 4},
			values: []string{"n1", "n2", "n5", "n8"}}}
		plan.byRank[0].groups = []group{{endpoints: 1}, {endpoints: 1}, {endpoints: 1}, {endpoints: 2}}
		named := demand.named != nil
		for name, want := range map[string][2]uint64{ // the offset with demand by labels, and with demand by name
			"n0": {0, 0}, "n3": {1 << 32 / 12, 1 << 32 / 10}, "n4": {4 << 32 / 12, 4 << 32 / 10}, "n6": {5 << 32 / 12, 4 << 32 / 10},
			"n7": {6 << 32 / 12, 4 << 32 / 10}, "n9": {9 << 32 / 12, 7 << 32 / 10},
			"n1": {0, 0}, "n2": {3 << 32 / 7, 3 << 32 / 4}, "n5": {4 << 32 / 7, 0}, "n8": {0, 0}, "m": {0, 0}, "unknown": {0, 0},
		} {
			wanted := want[map[bool]int{true: 1}[named]]
			if got := plan.offset(name, 0); uint64(got) != wanted {
				t.Errorf("%s has offset %d, want %d, demand by name: %t", name, got, wanted, named)
			}
		}
	}
}

// TestEpsilonCountsAsZero: demand or capacity that is only a rounding error counts as zero; anything more counts.
func TestEpsilonCountsAsZero(t *testing.T) {
	for _, c := range []struct{ demand, capacity, placed uint64 }{
		{10, 5000, 0}, {5000, 10, 0}, {11, 5000, 11}, {5000, 11, 11}, {3000, 5000, 3000}, {5000, 3000, 3000},
	} {
		s := rankPlan{
			counts: []uint64{1}, kinds: 1, loads: [numKinds][]uint64{{7}}, addedLoads: [numKinds][]uint64{{0}},
			components: []component{{maxLoad: 7 + c.capacity, epsilon: 10}},
		}
		g := group{endpoints: 1}
		s.waterFill(0, &g, []int32{0}, [numKinds]uint64{c.demand}, One)
		if g.assigned != c.placed || s.addedLoads[0][0] != c.placed || s.loads[0][0] != 7+c.placed || c.placed == 0 &&
			min(g.remaining, g.capacity) > 0 {
			t.Errorf("%+v: assigned is %d, %d for each endpoint, %+v", c, g.assigned, s.addedLoads[0], g)
		}
	}
}

func TestQuota(t *testing.T) {
	for _, c := range []struct{ endpoints, crowd, heaviest, sum, want uint64 }{
		{10, 1, 1, 4, 80},              // 32 for each endpoint if few nodes round
		{10, 16, 1, 4, 80},             //
		{10, 32, 1, 4, 40},             // 16 if twice as many round
		{10, 30, 1, 1, 171},            // 170 2/3, rounded up
		{3, 16, 1, 5, 20},              // 19 1/5, rounded up
		{10, 5000, 1, 1, 16},           // at least 16
		{5000, 16, One / 2, One, 2048}, // at most 4096
	} {
		share := Share{Endpoints: c.endpoints, effectiveNodes: c.crowd}
		if got := share.quota(c.heaviest, c.sum); got != c.want {
			t.Errorf("%+v: the heaviest endpoint gets %d slots", c, got)
		}
	}
}

func TestMulDiv(t *testing.T) {
	const maxUint64 = 1<<64 - 1
	for _, c := range [][4]uint64{
		{0, 1, 2, 0}, {7, 1, 2, 3}, {7, 2, 2, 7}, {maxUint64, maxUint64, maxUint64, maxUint64}, {maxUint64, 1, maxUint64, 1},
		{maxUint64, maxUint64 - 1, maxUint64, maxUint64 - 1},
		{1 << 62, 1, 3, 1 << 62 / 3},
	} {
		if got := mulDiv(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("mulDiv(%d, %d, %d) = %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
	if perMille(1, 3) != 333 || perMille(2, 3) != 667 || perMille(1<<61, 1<<60) != 2000 || perMille(0, 5) != 0 {
		t.Error("perMille returned a wrong result")
	}
}
