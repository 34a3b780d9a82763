package rules

import "maps"

// Snapshot is a copy for readers: it answers what the original does now, and never changes. Its cost grows with the number
// of label keys and zones, not with the number of Nodes: it shares those with the original until one of them changes.
func (n *NodeLabels) Snapshot() *NodeLabels {
	for i := range n.nodes {
		n.nodes[i].isShared = true
	}
	return &NodeLabels{nodes: n.nodes, keys: maps.Clone(n.keys), zones: maps.Clone(n.zones)}
}
