package rules

import "maps"

// Snapshot is a copy for readers: it answers what Carries and Zones ask as the original does now, and is never
// changed. It costs what there are labels' keys and zones, and not what there are Nodes.
func (n *NodeLabels) Snapshot() *NodeLabels {
	return &NodeLabels{keys: maps.Clone(n.keys), zones: maps.Clone(n.zones)}
}
