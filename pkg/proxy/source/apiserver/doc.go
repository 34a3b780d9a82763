// Package apiserver follows a Kubernetes cluster and hands over what changed, as values of package model.
//
// An object goes through these steps:
//
//	ask       for the objects of a kind                  package convert describes the kinds; resources.go
//	follow    with a Reflector, whose store this is      stream.go, which also says what a cluster may lack
//	strip     to the value that is used                  package convert converts; intern.go
//	take in   one after the other, and what is due       change.go
//	decide    deliver, refuse or hold back               state.go, state_services.go (pure)
//	          serve a while longer what left this proxy  state_leaving.go (pure)
//	          whether what was measured counts           demand.go
//	          what is known of nodes                     package nodes (pure)
//	hand over what came together                         state_update.go (pure)
//	deliver   it                                         cluster.go; load.go: once
//
// Whether the API server sends changes just now is in outage.go; how soon it is asked again when it does not answer
// is in retry.go.
//
// # Services of other proxies
//
// They are listed and watched, too, but nothing of them is kept, not even a name. Only this way can we tell a Service
// that gets another proxy's name from one that is deleted. The former stays in force for a few seconds, until the other
// proxy serves it; the latter goes at once, even while it is leaving. EndpointSlices are followed whoever serves their
// Service, and so are the endpoints of one that is leaving.
//
// # Nodes
//
// This node is followed in full. Other nodes are followed only while a Service names a topology key that
// EndpointSlices do not answer (they answer the hostname and the zone), and only their metadata, with all of their
// labels; nodes.go follows what the state asks for. A Service that names such a key before all nodes are listed is
// held back until they are, or have been waited for long enough, and its last version stays in force.
//
// If somebody publishes TopologySlices, those are followed instead (topology.go). If nobody does, and no Service asks
// for more than zones and the demand of nodes, the EndpointSlices over the proxies' own pods are followed, with the few
// Nodes whose labels state their demand (topology_proxies.go). The last known state stays in force until its
// replacement is completely listed. A Service that names a label which is not known yet waits for it, for ten seconds
// at most; other Services do not wait.
//
// Nodes with the label that evacuates them, this one or others, are followed on their own, by that label: the API server
// sends nothing of the rest, not even their heartbeats. To that watch a label that is removed looks like a Node that is
// deleted, so nodes.go asks which it was: a list of those nodes' metadata, at most once a second, of 0.5 kB a node.
//
// # Measured demand of Services
//
// ServiceDemands, and their publisher's Lease, are read only while the load of a Service of ours is bounded with
// measured demand (demand.go). Before that, and some time after the last such Service, there are no requests. Without a
// Lease only the Lease is asked for. A Service waits until both were read once, for ten seconds at most, so that a
// proxy that starts plans at once what its neighbours plan. While the API server is away, the last known state stays in
// force without limit.
//
// # What nodes cost
//
// Bytes that one proxy receives in an hour in which each of 1,000 kubelets writes its node's status 12 times and
// nothing else happens, as it comes over the wire, with TLS (nodes with 50 images and 25 labels, 13 kB as protobuf).
// Kubernetes 1.37 compresses what a watch sends (k8s.io/apiserver v0.37, endpoints/handlers/watch.go):
//
//	                                                Kubernetes 1.36    1.37
//	this node only, while no Service needs others       0.17 MB        0.03 MB
//	metadata of the others, while a Service does       45 MB           6.6 MB    0.55 kB each time, 3.8 kB before
//	full nodes, for comparison                        156 MB          18.2 MB    1.5 kB each time, 13 kB before
//
// To measure a third of the hour again: go test ./e2e/apiserver -run Heartbeats -v
//
// # What the cache costs
//
// 10,000 Services with ten endpoints each take 2.2 kB a Service; 1.1 kB of it are the endpoints, which the proxy itself
// works with. To measure again: go test ./pkg/proxy/source/apiserver -run Cache -v
package apiserver
