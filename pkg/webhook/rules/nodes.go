package rules

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NodeLabels counts the labels of a cluster's Nodes. It is not safe for concurrent use.
type NodeLabels struct {
	labels map[string]map[string]string // by Node; nil in a snapshot
	keys   map[string]int               // number of Nodes with a label key
	zones  map[string]int               // number of Nodes in a zone
}

// NewNodeLabels returns the labels of a cluster without Nodes.
func NewNodeLabels() *NodeLabels {
	return &NodeLabels{labels: map[string]map[string]string{}, keys: map[string]int{}, zones: map[string]int{}}
}

// Put replaces a Node's labels, and reports whether anything changed.
func (n *NodeLabels) Put(name string, labels map[string]string) bool {
	old, isKnown := n.labels[name]
	if isKnown && maps.Equal(old, labels) {
		return false
	}
	n.count(old, -1)
	n.labels[name] = maps.Clone(labels)
	n.count(labels, 1)
	return true
}

// Delete removes a Node. It does nothing if the Node is unknown.
func (n *NodeLabels) Delete(name string) {
	n.count(n.labels[name], -1)
	delete(n.labels, name)
}

// Snapshot returns an immutable copy of the counts.
func (n *NodeLabels) Snapshot() *NodeLabels {
	return &NodeLabels{keys: maps.Clone(n.keys), zones: maps.Clone(n.zones)}
}

// count adds labels to the counts, or subtracts them. A count of zero is removed.
func (n *NodeLabels) count(labels map[string]string, delta int) {
	for key := range labels {
		addCount(n.keys, key, delta)
	}
	if zone := labels[string(policy.Zone)]; zone != "" { // an empty zone counts as none
		addCount(n.zones, zone, delta)
	}
}

func addCount(sums map[string]int, key string, delta int) {
	sums[key] += delta
	if sums[key] == 0 {
		delete(sums, key)
	}
}

// HasKey reports whether any Node has a label with that key.
func (n *NodeLabels) HasKey(key string) bool { return n.keys[key] > 0 }

// Zones returns the number of zones. Nodes without a zone do not count.
func (n *NodeLabels) Zones() int { return len(n.zones) }

// suggest returns the label key that is closest to one that no Node has; empty if none is close.
func (n *NodeLabels) suggest(key string) string {
	return policy.Suggest(key, slices.Sorted(maps.Keys(n.keys))...)
}
