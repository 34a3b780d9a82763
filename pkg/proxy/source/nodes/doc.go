// Package nodes holds the state of the nodes, from any source: the labels of this node and of others, whether all nodes
// are known, and which nodes are demoted.
//
//	providers.go   the kinds of objects that describe nodes: a row for each
//	store.go       combines them node by node, and selects the labels to deliver
//	slices.go      objects that describe several nodes each
//	labelgate.go   which labels are in use, and which Services wait: for them, for lists, for measured demand
//	demotions.go   the demotions, when they end, and what happens to them when a Node is deleted
//
// To add a source of node labels, add a row in providers.go and its kind in package convert. The timeouts are in
// providers.go, too.
//
// The package is pure: it uses no API server, no folder and no clock. All deadlines (of waiting, of forgotten nodes, of
// evacuations) are in one queue. A source gets the next deadline with Next, and calls Expire then.
//
// # Users
//
// The watches of an API server, a folder of manifests, and a forecast each have a Store. They put in the objects that
// they read, and take out the parts of a model.Change that concern nodes. A provider that reads no objects, such as a
// failure detector, needs no Store: it delivers a model.Change with Demotions for a reason of its own, and the model
// combines all reasons.
//
// # Nodes that are deleted while they are demoted
//
// When a Node is deleted, its labels are deleted with it. The endpoints that EndpointSlices still list there would be
// eligible again, for up to 80 s, until the slices are updated. So the demotion of such a node is kept for
// deletedNodeRetention. The EndpointSlices are not checked during that time: a new Node of that name with the label is
// demoted because of the label, and one without it gets connections as soon as that time is over. A node that is dead
// for longer is detected because it does not respond (package reachability).
//
// A watch that selects by label reports a removed label and a deleted Node alike. The watcher must find out which it
// was (TakePendingChecks, ResolveChecks). Until it does, for checkTimeout at most, the demotion stays.
//
// Nothing is kept across a restart: a starting proxy does not know that the Node existed and treats the endpoints as
// usable, as all proxies did before. So proxies may differ until the slices are updated. The alternative is to ignore
// endpoints whose Node does not exist. But a proxy knows that only if it watches all nodes, and an unknown node must
// never be worse than having no setting.
package nodes
