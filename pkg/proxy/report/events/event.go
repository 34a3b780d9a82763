package events

import (
	"cmp"
	"strings"
)

// Event is a note about an object.
type Event struct {
	Regarding Reference
	// Warning reports whether something does not work as intended. Otherwise the Event is of type Normal.
	Warning bool
	Reason  string // why, in one CamelCase word, for machines
	Action  string // what the proxy did, in one CamelCase word
	Note    string // a sentence, for people
	// Topic distinguishes two notes with the same object and Reason. If empty, it is the Note. It is set if the Note
	// contains something that changes each time, such as a process ID.
	Topic string
	// Local reports whether the note is about this node: each node then has its own Event. Otherwise the note follows from
	// the cluster's objects alone, and all proxies of the cluster report it as one Event.
	Local bool
}

// key identifies an Event that must not be repeated.
type dedupKey struct {
	regarding     Reference
	reason, topic string
}

// key returns the Event's key.
func (e Event) key() dedupKey { return dedupKey{e.Regarding, e.Reason, cmp.Or(e.Topic, e.Note)} }

// Reference identifies the object of an Event.
type Reference struct {
	Kind      string // "Service", "EndpointSlice", "ServiceCIDR", "Node" or "ServiceDemand"
	Namespace string // empty if the kind has none
	Name      string
	// UID is the object's metadata.uid. kubectl describe selects by it: without it only kubectl get events finds the
	// Event.
	UID string
}

// String returns the reference for display: "Service shop/web", or "Node node-1".
func (r Reference) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}

// Node returns the reference to a node. Its UID is its name, as in the references of kubelet and kube-proxy; kubectl
// describe node looks for both that and metadata.uid.
func Node(name string) Reference { return Reference{Kind: "Node", Name: name, UID: name} }
