package model

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// The resources from which it is known where other nodes are, as metrics, outages and `explain` call them.
const (
	FromNodes       = "nodes"
	FromSlices      = "topologyslices"
	FromProxySlices = "endpointslices/proxies" // those over the proxies' own pods
)

// TopologyResources are all of them.
var TopologyResources = []string{FromNodes, FromSlices, FromProxySlices}

// TopologySlice says where some nodes are. A publisher writes it, so that not every proxy follows every Node; or it is made
// from an EndpointSlice over the proxies themselves.
type TopologySlice struct {
	// Keys are the labels that it knows of: a node without a value for one of them has no such label.
	Keys []policy.Key
	// Nodes are those that it describes, by name. They have no addresses.
	Nodes map[string]*Node
}
