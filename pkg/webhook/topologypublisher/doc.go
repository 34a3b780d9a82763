// Package topologypublisher writes the TopologySlices of a cluster, which proxies read instead of watching all Nodes.
//
//	Nodes        ┐ metadata,                        ┌ TopologySlices
//	Services     ├ by a cache  ──► keys, plan ──►   ┤                    package topologyslice
//	Namespaces   ┘                 (pure)           └ the Lease
//
// Any number of replicas may run. The leader, elected by a Lease, publishes, and takes over the slices of earlier
// leaders. A replica that is no longer the leader continues to serve reviews, and takes part in the next election.
//
// Changes are batched: a round starts one second after the first change. A slice is written only if something in it
// changes, and a node moves to another slice only if necessary. Users choose which keys are published, so changes of
// keys have a budget, and the number of keys is limited.
//
// To change which keys are published, start in keys.go; for how nodes are assigned to slices, in plan.go; for when
// slices and the Lease are written, in round.go; for what is watched, in changes.go. The resource itself is in package
// topologyslice.
//
// # Cost
//
// The leader watches the metadata of all Nodes, Services and Namespaces, and keeps names, labels and Vicinity's
// annotations. A write is one slice: at most NodesPerSlice nodes, some 150 bytes each with three labels. Proxies
// receive each write.
package topologypublisher
