package rules

import (
	"hash/fnv"
	"iter"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NodeLabels counts which labels the Nodes of a cluster carry. It is a plain value: a caller that shares it between
// goroutines guards it.
type NodeLabels struct {
	nodes [shards]shard  // labels by Node
	keys  map[string]int // how many Nodes carry a key
	zones map[string]int // how many Nodes are in a zone
}

// shards is the number of parts that hold the Nodes: a snapshot shares all of them, and a change copies one.
const shards = 64

// shard is a part of the Nodes.
type shard struct {
	labels   map[string]map[string]string // nil without Nodes
	isShared bool                         // with a snapshot, so that it must not change
}

// shardOf is where a Node is.
func shardOf(name string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	return hash.Sum64() % shards
}

// own is the shard of a Node, to be changed.
func (n *NodeLabels) own(name string) *shard {
	s := &n.nodes[shardOf(name)]
	if s.isShared {
		s.labels, s.isShared = maps.Clone(s.labels), false
	}
	return s
}

// all returns the labels of all Nodes, in no order.
func (n *NodeLabels) all() iter.Seq2[string, map[string]string] {
	return func(yield func(string, map[string]string) bool) {
		for i := range n.nodes {
			for name, labels := range n.nodes[i].labels {
				if !yield(name, labels) {
					return
				}
			}
		}
	}
}

// NewNodeLabels returns those of a cluster without Nodes.
func NewNodeLabels() *NodeLabels {
	return &NodeLabels{keys: map[string]int{}, zones: map[string]int{}}
}

// Put takes a Node's labels, in place of those that it had.
func (n *NodeLabels) Put(name string, labels map[string]string) {
	n.Delete(name)
	part := n.own(name)
	if part.labels == nil {
		part.labels = map[string]map[string]string{}
	}
	part.labels[name] = maps.Clone(labels)
	n.count(labels, 1)
}

// Delete forgets a Node. It does nothing if the Node is unknown.
func (n *NodeLabels) Delete(name string) {
	part := n.own(name)
	n.count(part.labels[name], -1)
	if delete(part.labels, name); len(part.labels) == 0 {
		part.labels = nil
	}
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

// Carries reports whether any Node has a label with that key.
func (n *NodeLabels) Carries(key string) bool { return n.keys[key] > 0 }

// Zones returns the number of zones. Nodes without a zone do not count.
func (n *NodeLabels) Zones() int { return len(n.zones) }

// suggest returns the label that was probably meant by a key that no Node carries; empty if none comes near.
func (n *NodeLabels) suggest(key string) string {
	return policy.Suggest(key, slices.Sorted(maps.Keys(n.keys))...)
}
