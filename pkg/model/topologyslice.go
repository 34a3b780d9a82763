package model

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// TopologySlice says where some nodes are. It is written by a publisher, instead of which every proxy would follow every
// Node.
type TopologySlice struct {
	// Keys are the labels that it knows of: a node without a value for one of them has no such label.
	Keys []policy.Key
	// Nodes are those that it describes, by name. They have no addresses.
	Nodes map[string]*Node
}
