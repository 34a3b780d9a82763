package rules

import "maps"

// Snapshot is a copy for readers: it answers what the original does now, and is never changed. It costs what there are
// labels' keys and zones, and not what there are Nodes: those are shared, until one of them changes.
func (n *NodeLabels) Snapshot() *NodeLabels {
	for i := range n.nodes {
		n.nodes[i].isShared = true
	}
	return &NodeLabels{nodes: n.nodes, keys: maps.Clone(n.keys), zones: maps.Clone(n.zones)}
}
