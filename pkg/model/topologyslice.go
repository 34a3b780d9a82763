package model

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// The resources from which we learn where other nodes are, by their names in metrics, outages and `explain`.
const (
	TopologyFromNodes   = "nodes"
	TopologyFromSlices  = "topologyslices"
	TopologyFromProxies = "endpointslices/proxies" // those over the proxies' own pods
)

// TopologyResources are all of them, with the words for people.
var TopologyResources = []struct{ Name, Words string }{
	{TopologyFromNodes, "Nodes"},
	{TopologyFromSlices, "TopologySlices"},
	{TopologyFromProxies, "the EndpointSlices of the proxies"},
}

// TopologySlice says where some nodes are. A publisher writes it, to save every proxy from following every Node; or it
// is made from an EndpointSlice over the proxies themselves.
type TopologySlice struct {
	// Keys are the labels that it covers: a node without a value for one of them does not have the label.
	Keys []policy.Key
	// Nodes are those that it describes, by name. They have no addresses.
	Nodes map[string]*Node
}
