// Package apiserver watches a Kubernetes cluster and delivers its changes as values of package model.
//
// An object goes through these steps:
//
//	request   the objects of a kind                      package convert describes the kinds; resources.go
//	watch     with a Reflector and its store             stream.go, which also handles optional resources
//	strip     to the value that is used                  package convert converts; intern.go
//	process   one after the other, and expired timers    change.go
//	decide    deliver, reject or block                   state.go, state_services.go (pure)
//	          hand a Service off to another proxy        state_handoff.go (pure)
//	          whether measured demand counts             demand.go
//	          the state of the nodes                     package nodes (pure)
//	batch     the changes into one update                state_update.go (pure)
//	deliver   the update                                 watcher.go; load.go: once
//
// To change what is kept of an object, see transform in stream.go. A resource that is watched only while a Service
// needs it is an onDemandWatch (on_demand.go) that newWatcher lists. interruption.go defines when a watch counts
// as interrupted, and retry.go the retries of requests without a response. The timer is in change.go.
//
// # Services of other proxies
//
// These are listed and watched, too, but nothing of them is kept, not even a name. This is the only way to distinguish
// a Service that is assigned to another proxy from one that is deleted. The former stays active for a few seconds,
// until the other proxy serves it. The latter is removed at once, even during such a handoff. EndpointSlices are
// watched regardless of the proxy that serves their Service, and so are the endpoints of a Service in a handoff.
//
// # Nodes
//
// This node is watched in full. Other nodes are watched only while a Service names a topology key that EndpointSlices
// do not contain (they contain the hostname and the zone), and only their metadata, with all of their labels
// (nodes.go). A Service that names such a key before all nodes are listed is blocked until they are, or until a
// timeout. Its last version stays active.
//
// While TopologySlices are published, the proxy watches those instead (topology.go). Otherwise, if no Service needs
// more than the zones and the demand of nodes, it watches the EndpointSlices over the proxies' own pods, with the few
// Nodes whose labels state their demand (topology_proxies.go). The last known state stays active until its replacement
// is completely listed. A Service that names an unknown label waits for it, for ten seconds at most. Other Services do
// not wait.
//
// Nodes with the label that evacuates them, this one or others, are watched separately, by that label: the API server
// sends nothing about the other Nodes, not even their heartbeats. Such a watch reports a removed label and a deleted
// Node alike. So nodes.go checks whether the Node exists: it lists the metadata of those nodes, at most once a second,
// 0.5 kB a node.
//
// # Measured demand of Services
//
// ServiceDemands and their publisher's Lease are read only while one of our Services has a load bound that is planned
// with measured demand (demand.go). Before that, and some time after the last such Service is gone, there are no
// requests. Without a Lease only the Lease is requested. A Service waits until both were read once, for ten seconds at
// most, so that a starting proxy plans at once as its neighbours do. While the API server is unavailable, the last
// known state stays active without limit.
//
// # What nodes cost
//
// Bytes that one proxy receives in an hour in which each of 1,000 kubelets writes its node's status 12 times and
// nothing else happens, measured on the wire, with TLS (nodes with 50 images and 25 labels, 13 kB as protobuf).
// Kubernetes 1.37 compresses watch responses (k8s.io/apiserver v0.37, endpoints/handlers/watch.go):
//
//	                                                Kubernetes 1.36    1.37
//	this node only, while no Service needs others       0.17 MB        0.03 MB
//	metadata of the others, while a Service does       45 MB           6.6 MB    0.55 kB each time, 3.8 kB before
//	full nodes, for comparison                        156 MB          18.2 MB    1.5 kB each time, 13 kB before
//
// To repeat the measurement over a third of an hour: go test ./e2e/apiserver -run Heartbeats -v
//
// # What the cache costs
//
// 10,000 Services with ten endpoints each take 2.2 kB a Service; 1.1 kB of it are the endpoints, which the proxy itself
// uses. To measure again: go test ./pkg/proxy/source/apiserver -run Cache -v
package apiserver
