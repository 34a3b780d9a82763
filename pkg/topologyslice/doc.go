// Package topologyslice is the custom resource that says where nodes are: TopologySlice, of vicinity.dev/v1alpha1. A
// publisher beside the webhook writes it, and proxies read it instead of following every Node of a large cluster.
//
// It is shaped like EndpointSlice: each object describes some of the nodes, and together they describe all.
//
// # The Lease
//
// A Lease beside the publisher says that what all slices say together was true at its renewTime. The publisher renews it
// only while it follows Nodes and nothing is left to write. So one small object tells readers of the slices whether
// there is a publisher, that the first publication is complete, and how old the newest data may be.
package topologyslice
