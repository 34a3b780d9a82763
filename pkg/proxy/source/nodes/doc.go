// Package nodes holds what is known about nodes, from any source: the labels of this node and of others, whether all
// nodes are known, and what is held against a node.
//
//	providers.go   who says something of nodes: a row for each
//	store.go   what they say, put together, node by node; what of it is handed over
//	slices.go      objects that describe several nodes each
//	labelgate.go     which labels are in use, and which Services wait: for them, for lists, for measured demand
//	demotions.go       what is held against nodes, until when, and what becomes of it when a Node goes
//
// It is pure: it knows no API server, no folder and no clock. Everything that is due later (to give up waiting, to
// forget, to end an evacuation) is in one queue; a source asks with Next when to come back, and then calls Expire.
//
// # Who uses it
//
// The watches of an API server, a folder of manifests, and a forecast each have a Directory. They put in what they read,
// and take out the parts of a model.Change that concern nodes. A provider that reads no object, such as one that
// observes whether nodes answer, needs none: it delivers a model.Change with Avoid for a reason of its own, and the
// model combines all reasons.
//
// # Nodes that went while they were avoided
//
// A Node that goes takes its label with it. What EndpointSlices still list there would count as usable again, for up to a
// minute, until they are brought up to date. So what was held against such a node is kept for goneFor. Nobody looks at the
// slices meanwhile: a Node of that name that comes back with the label is avoided because of the label, and one that comes
// back without it gets connections as soon as that time is over. A node that is dead for longer is one that does not
// answer (package reachability).
//
// To a watch that selects by label, a label that is removed looks like a deleted Node. The watcher is asked to find out
// which it was (Questions, Answer); until it answers, for answerPatience at most, what was held stays.
//
// Nothing is remembered over a restart: a proxy that starts does not know of the Node, and takes the endpoints for usable,
// as all proxies did before. So proxies may differ until the slices are up to date. The alternative is to ignore
// endpoints whose Node does not exist; but a proxy knows that only if it follows all nodes, and an unknown node must
// never be worse than no setting.
package nodes
