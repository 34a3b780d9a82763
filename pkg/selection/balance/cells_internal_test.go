package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestCellsForgetWhatIsGone: labels whose values come and go for years need no more memory than those that are there.
func TestCellsForgetWhatIsGone(t *testing.T) {
	keys := []policy.Key{policy.Hostname, policy.Zone, policy.Region, policy.AnyNode}
	cells, random := NewCells(keys, "n0"), rand.New(rand.NewPCG(1, 1))
	for i := range 5000 {
		name := fmt.Sprint("n", random.IntN(20))
		if random.IntN(4) == 0 {
			cells.Remove(name)
			continue
		}
		cells.Set(name, map[string]string{string(policy.Zone): fmt.Sprint(i), string(policy.Region): fmt.Sprint(i % 7)})
	}
	zones, regions := &cells.words[1], &cells.words[2]
	if len(cells.cells) > 21 || len(zones.words) > 21 || len(regions.words) > 7 {
		t.Errorf("%d cells, %d zones and %d regions are kept for 20 nodes", len(cells.cells), len(zones.words), len(regions.words))
	}
	for i := range 20 {
		cells.Remove(fmt.Sprint("n", i))
	}
	if left := len(cells.index) + len(cells.nodes) + len(zones.numbers) + len(regions.numbers); left > 0 {
		t.Errorf("%d things are left of no nodes", left)
	}
	if cells.before != (tally{}) {
		t.Errorf("%+v is before this node, which is gone", cells.before)
	}
}

// TestNodesThatAreAlikeStandSideBySide: seats of those who host as many endpoints are evenly spaced, and so are those of
// the others in the cell, by their demand.
func TestNodesThatAreAlikeStandSideBySide(t *testing.T) {
	keys := []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}
	cells := NewCells(keys, "n3")
	for i := range 10 {
		cells.Set(fmt.Sprint("n", i), map[string]string{string(policy.Zone): "a", policy.DemandLabel: []string{"1", "3"}[i%2]})
	}
	cells.Set("m", map[string]string{string(policy.Zone): "b"})
	clients := map[string]uint32{"n0": 1, "n1": 3, "n2": 1, "n3": 3, "n7": 3, "n9": 3, "m": 1}
	for _, demand := range []Demand{cells.ByLabels(), cells.Named(clients)} {
		// n1, n2 and n5 host one endpoint, n8 hosts two.
		plan := Plan{demand: demand, places: &Places{keys: keys, first: []int32{0, 4, 4, 4}, values: []string{"n1", "n2", "n5", "n8"}}}
		plan.splits[Ready].groups = []group{{endpoints: 1}, {endpoints: 1}, {endpoints: 1}, {endpoints: 2}}
		named := demand.named != nil
		for name, want := range map[string][2]uint64{ // the part of those before, by labels and by names
			"n0": {0, 0}, "n3": {1 << 32 / 12, 1 << 32 / 10}, "n4": {4 << 32 / 12, 4 << 32 / 10}, "n6": {5 << 32 / 12, 4 << 32 / 10},
			"n7": {6 << 32 / 12, 4 << 32 / 10}, "n9": {9 << 32 / 12, 7 << 32 / 10},
			"n1": {0, 0}, "n2": {3 << 32 / 7, 3 << 32 / 4}, "n5": {4 << 32 / 7, 0}, "n8": {0, 0}, "m": {0, 0}, "unknown": {0, 0},
		} {
			wanted := want[map[bool]int{true: 1}[named]]
			if got := plan.seat(name, Ready); uint64(got) != wanted {
				t.Errorf("%s has seat %d, want %d, demand named: %t", name, got, wanted, named)
			}
		}
	}
}

func TestParts(t *testing.T) {
	const most = 1<<64 - 1
	for _, c := range [][4]uint64{
		{0, 1, 2, 0}, {7, 1, 2, 3}, {7, 2, 2, 7}, {most, most, most, most}, {most, 1, most, 1}, {most, most - 1, most, most - 1},
		{1 << 62, 1, 3, 1 << 62 / 3},
	} {
		if got := part(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%d · %d / %d is %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
	if perMille(1, 3) != 333 || perMille(2, 3) != 667 || perMille(1<<61, 1<<60) != 2000 || perMille(0, 5) != 0 {
		t.Error("a ratio is wrong")
	}
}
