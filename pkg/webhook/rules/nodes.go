package rules

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NodeLabels counts which labels the Nodes of a cluster carry. It is a plain value: a caller that shares it between
// goroutines guards it.
type NodeLabels struct {
	nodes map[string]map[string]string // labels by Node
	keys  map[string]int               // how many Nodes carry a key
	zones map[string]int               // how many Nodes are in a zone
}

// NewNodeLabels returns those of a cluster without Nodes.
func NewNodeLabels() *NodeLabels {
	return &NodeLabels{nodes: map[string]map[string]string{}, keys: map[string]int{}, zones: map[string]int{}}
}

// Put takes a Node's labels, in place of those that it had.
func (n *NodeLabels) Put(name string, labels map[string]string) {
	n.Delete(name)
	n.nodes[name] = maps.Clone(labels)
	n.count(labels, 1)
}

// Delete forgets a Node. It does nothing if the Node is unknown.
func (n *NodeLabels) Delete(name string) {
	n.count(n.nodes[name], -1)
	delete(n.nodes, name)
}

// count adds labels to the sums, or takes them off. A sum of zero leaves nothing behind.
func (n *NodeLabels) count(labels map[string]string, by int) {
	for key := range labels {
		add(n.keys, key, by)
	}
	if zone := labels[string(policy.Zone)]; zone != "" { // an empty zone is none
		add(n.zones, zone, by)
	}
}

func add(sums map[string]int, key string, by int) {
	sums[key] += by
	if sums[key] == 0 {
		delete(sums, key)
	}
}

// Carries reports whether any Node has a label with that key.
func (n *NodeLabels) Carries(key string) bool { return n.keys[key] > 0 }

// Zones is how many zones there are. Nodes without a zone are in none.
func (n *NodeLabels) Zones() int { return len(n.zones) }

// suggest returns the label that was probably meant by a key that no Node carries; empty if none comes near.
func (n *NodeLabels) suggest(key string) string {
	return policy.Suggest(key, slices.Sorted(maps.Keys(n.keys))...)
}
