package rules

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodeLabelsCountKeysAndZones(t *testing.T) {
	nodes := NewNodeLabels()
	nodes.Put("a", map[string]string{"rack": "1", "topology.kubernetes.io/zone": "zone-a"})
	nodes.Put("b", map[string]string{"rack": "2", "topology.kubernetes.io/zone": "zone-b"})
	nodes.Put("c", map[string]string{"topology.kubernetes.io/zone": ""})
	if !nodes.HasKey("rack") || !nodes.HasKey("topology.kubernetes.io/zone") || nodes.HasKey("row") {
		t.Errorf("keys are %v", nodes.keys)
	}
	if nodes.Zones() != 2 {
		t.Errorf("%d zones, want 2: an empty zone does not count", nodes.Zones())
	}
	nodes.Put("b", map[string]string{"topology.kubernetes.io/zone": "zone-a"})
	nodes.Delete("a")
	nodes.Delete("a")
	nodes.Delete("unknown")
	if nodes.HasKey("rack") || nodes.Zones() != 1 {
		t.Errorf("keys are %v, zones %v", nodes.keys, nodes.zones)
	}
}

func TestNodeLabelsCopyLabels(t *testing.T) {
	labels := map[string]string{"rack": "1"}
	nodes := NewNodeLabels()
	nodes.Put("a", labels)
	delete(labels, "rack")
	nodes.Delete("a")
	if len(nodes.keys) > 0 {
		t.Errorf("keys %v remain after their Node was deleted", nodes.keys)
	}
}

// After any history, the counts are those of the existing nodes.
func TestNodeLabelsDoNotDependOnTheirHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	randomLabels := func() map[string]string {
		labels := map[string]string{}
		for _, key := range []string{"rack", "row", "topology.kubernetes.io/zone"} {
			if value := random.IntN(4); value > 0 {
				labels[key] = strconv.Itoa(value - 1)
			}
		}
		return labels
	}
	nodes := NewNodeLabels()
	for range 2000 {
		if name := strconv.Itoa(random.IntN(6)); random.IntN(3) == 0 {
			nodes.Delete(name)
		} else {
			nodes.Put(name, randomLabels())
		}
		fresh := NewNodeLabels()
		for name, labels := range nodes.labels {
			fresh.Put(name, labels)
		}
		if diff := cmp.Diff(fresh, nodes, cmp.AllowUnexported(NodeLabels{})); diff != "" {
			t.Fatalf("differs (-fresh +history):\n%s", diff)
		}
	}
}
