package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestPrefixSumsOfAllNodes: after each change, the sums that NodeClasses keeps for its own node and those that it
// computes for other nodes are correct.
func TestPrefixSumsOfAllNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	classes := NewNodeClasses([]policy.Key{policy.Zone}, "node-05")
	for range 300 {
		name := fmt.Sprintf("node-%02d", random.IntN(20))
		if random.IntN(4) == 0 {
			classes.Remove(name)
		} else {
			classes.Set(name, map[string]string{string(policy.Zone): fmt.Sprint(random.IntN(3)), policy.DemandLabel: fmt.Sprint(random.IntN(5))})
		}
		named := classes.Named(map[string]uint32{"node-03": 2, "node-05": 3, "node-07": 1, "elsewhere": 9})
		for name, node := range classes.nodes {
			if got, want := classes.ByLabels().sumBefore(name, node.class), classes.computePrefix(name, node.class); got != want {
				t.Fatalf("before %s: %+v, want %+v", name, got, want)
			}
			want := sums{nodes: classes.computePrefix(name, node.class).nodes}
			for other, amount := range map[string]uint32{"node-03": 2, "node-05": 3, "node-07": 1} {
				if otherNode, known := classes.nodes[other]; known && otherNode.class == node.class && other < name {
					want.add(sums{demand: uint64(amount), squares: uint64(amount) * uint64(amount)})
				}
			}
			if got := named.sumBefore(name, node.class); got != want {
				t.Fatalf("named before %s: %+v, want %+v", name, got, want)
			}
		}
	}
}

// TestNodesWithoutLinuxAreInNoClass: nodes with another operating system are in no class, because their clients do not
// follow plans. This holds for demand by labels, by name and by zone.
func TestNodesWithoutLinuxAreInNoClass(t *testing.T) {
	zoned := func(system string) map[string]string {
		labels := map[string]string{string(policy.Zone): "a", policy.OSLabel: system}
		if system == "" {
			delete(labels, policy.OSLabel)
		}
		return labels
	}
	classes := NewNodeClasses([]policy.Key{policy.Zone}, "")
	classes.Set("linux", zoned("linux"))
	classes.Set("unlabelled", zoned(""))
	classes.Set("windows", zoned("windows"))
	demand := classes.Named(map[string]uint32{"linux": 1, "windows": 5})
	if classes.Len() != 2 || classes.ByLabels().OfNode("windows") != 0 || demand.OfNode("windows") != 0 || demand.Zones()["a"] != 1 {
		t.Errorf("%d nodes, demand by zone %v; want 2 nodes, and demand only from linux", classes.Len(), demand.Zones())
	}
	if !classes.Set("unlabelled", zoned("windows")) || classes.Set("unlabelled", zoned("windows")) || classes.Len() != 1 {
		t.Errorf("a node whose OS label changed to windows was not removed: %d nodes", classes.Len())
	}
}
