package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestTheSumBeforeANodeIsTheSameForEveryNode: the maintained sum for the own node and the sorted sums for other nodes
// are correct after each change.
func TestTheSumBeforeANodeIsTheSameForEveryNode(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	cells := NewNodeClasses([]policy.Key{policy.Zone}, "node-05")
	for range 300 {
		name := fmt.Sprintf("node-%02d", random.IntN(20))
		if random.IntN(4) == 0 {
			cells.Remove(name)
		} else {
			cells.Set(name, map[string]string{string(policy.Zone): fmt.Sprint(random.IntN(3)), policy.DemandLabel: fmt.Sprint(random.IntN(5))})
		}
		named := cells.Named(map[string]uint32{"node-03": 2, "node-05": 3, "node-07": 1, "elsewhere": 9})
		for name, node := range cells.nodes {
			if got, want := cells.ByLabels().beforeNode(name, node.cell), cells.countBefore(name, node.cell); got != want {
				t.Fatalf("before %s: %+v, want %+v", name, got, want)
			}
			want := sums{nodes: cells.countBefore(name, node.cell).nodes}
			for other, of := range map[string]uint32{"node-03": 2, "node-05": 3, "node-07": 1} {
				if its, known := cells.nodes[other]; known && its.cell == node.cell && other < name {
					want.add(sums{demand: uint64(of), squares: uint64(of) * uint64(of)})
				}
			}
			if got := named.beforeNode(name, node.cell); got != want {
				t.Fatalf("named before %s: %+v, want %+v", name, got, want)
			}
		}
	}
}

// TestNodesWithoutLinuxAreInNoCell: their clients do not follow plans, whether demand is set by labels, by name or
// by zone.
func TestNodesWithoutLinuxAreInNoCell(t *testing.T) {
	zoned := func(system string) map[string]string {
		labels := map[string]string{string(policy.Zone): "a", policy.OSLabel: system}
		if system == "" {
			delete(labels, policy.OSLabel)
		}
		return labels
	}
	cells := NewNodeClasses([]policy.Key{policy.Zone}, "")
	cells.Set("linux", zoned("linux"))
	cells.Set("unlabelled", zoned(""))
	cells.Set("windows", zoned("windows"))
	demand := cells.Named(map[string]uint32{"linux": 1, "windows": 5})
	if cells.Len() != 2 || cells.ByLabels().Of("windows") != 0 || demand.Of("windows") != 0 || demand.Zones()["a"] != 1 {
		t.Errorf("%d nodes, zones %v", cells.Len(), demand.Zones())
	}
	if !cells.Set("unlabelled", zoned("windows")) || cells.Set("unlabelled", zoned("windows")) || cells.Len() != 1 {
		t.Errorf("a node whose OS label changed to windows was not removed: %d nodes", cells.Len())
	}
}
