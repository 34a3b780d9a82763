// Package topologyslice defines the custom resource for the topology of nodes: TopologySlice, of vicinity.dev/v1alpha1.
// A publisher in the webhook writes it, and proxies read it instead of watching every Node of a large cluster.
//
// Like EndpointSlice, each object describes some of the nodes, and together they describe all.
//
// # The Lease
//
// The publisher's Lease states that all slices together were correct at its renewTime. The publisher renews it only
// while it watches Nodes and has nothing left to write. So one small object tells readers of the slices whether there
// is a publisher, that the first publication is complete, and how old the newest data may be.
package topologyslice
