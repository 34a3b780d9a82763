package model

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// The resources that provide the topology of other nodes, by their names in metrics, outages and `explain`.
const (
	TopologyFromNodes   = "nodes"
	TopologyFromSlices  = "topologyslices"
	TopologyFromProxies = "endpointslices/proxies" // over the proxies' own pods
)

// TopologyResources are all of them, with their display names.
var TopologyResources = []struct{ Name, Words string }{
	{TopologyFromNodes, "Nodes"},
	{TopologyFromSlices, "TopologySlices"},
	{TopologyFromProxies, "the EndpointSlices of the proxies"},
}

// TopologySlice describes the topology of some nodes. A publisher writes it, so that not every proxy has to watch every
// Node. It can also be derived from an EndpointSlice over the proxies themselves.
type TopologySlice struct {
	// Keys are the labels that the slice covers: a node without a value for one of them does not have the label.
	Keys []policy.Key
	// Nodes are the described nodes by name. They have no addresses.
	Nodes map[string]*Node
}
