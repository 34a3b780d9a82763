package rules

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NodeLabels counts which labels the Nodes of a cluster carry. It is a plain value: a caller that shares it between
// goroutines guards it.
type NodeLabels struct {
	labels map[string]map[string]string // by Node; nil in a snapshot
	keys   map[string]int               // how many Nodes carry a key
	zones  map[string]int               // how many Nodes are in a zone
}

// NewNodeLabels returns those of a cluster without Nodes.
func NewNodeLabels() *NodeLabels {
	return &NodeLabels{labels: map[string]map[string]string{}, keys: map[string]int{}, zones: map[string]int{}}
}

// Put takes a Node's labels, in place of those that it had, and reports whether that changes anything.
func (n *NodeLabels) Put(name string, labels map[string]string) bool {
	before, isKnown := n.labels[name]
	if isKnown && maps.Equal(before, labels) {
		return false
	}
	n.count(before, -1)
	n.labels[name] = maps.Clone(labels)
	n.count(labels, 1)
	return true
}

// Delete forgets a Node. It does nothing if the Node is unknown.
func (n *NodeLabels) Delete(name string) {
	n.count(n.labels[name], -1)
	delete(n.labels, name)
}

// Snapshot is a copy of the sums for readers, which nobody changes.
func (n *NodeLabels) Snapshot() *NodeLabels {
	return &NodeLabels{keys: maps.Clone(n.keys), zones: maps.Clone(n.zones)}
}

// count adds labels to the sums, or subtracts them. A sum of zero is removed.
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

// HasKey reports whether any Node has a label with that key.
func (n *NodeLabels) HasKey(key string) bool { return n.keys[key] > 0 }

// Zones returns the number of zones. Nodes without a zone do not count.
func (n *NodeLabels) Zones() int { return len(n.zones) }

// suggest returns the label that was probably meant by a key that no Node carries; empty if none comes near.
func (n *NodeLabels) suggest(key string) string {
	return policy.Suggest(key, slices.Sorted(maps.Keys(n.keys))...)
}
