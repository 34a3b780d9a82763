// Package topologypublisher keeps the TopologySlices of a cluster: what proxies read about nodes, instead of following all of them.
//
//	Nodes        ┐ metadata,                        ┌ TopologySlices
//	Services     ├ by a cache  ──► keys, plan ──►   ┤                    package topologyslice
//	Namespaces   ┘                 (pure)           └ the Lease
//
// Any number of replicas may run. One of them leads, by a Lease, and works; it takes over what earlier leaders wrote. A
// replica that loses the lead goes on answering reviews, and waits for its next turn.
//
// Changes that come together are written together: a change is written a second after the first of those that it waits for. A
// slice is written only if something in it changes, and no node moves without need. Users choose which keys are
// published, so changes of keys have a budget, and there is an order in which keys get a place (keys.go).
//
// # Cost
//
// The leader follows the metadata of all Nodes, Services and Namespaces, and keeps names, labels and our own annotations.
// A write is a slice: at most NodesPerSlice nodes, some 150 bytes each with three labels. Proxies receive each write.
package topologypublisher
