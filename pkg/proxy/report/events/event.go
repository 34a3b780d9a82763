package events

import (
	"cmp"
	"strings"
)

// Event is a sentence about an object.
type Event struct {
	Regarding Reference
	// Warning: something is not as intended. Otherwise the Event is of type Normal.
	Warning bool
	Reason  string // why, in one CamelCase word, for machines
	Action  string // what the proxy did, in one CamelCase word
	Note    string // the sentence, for people
	// Topic distinguishes two sentences with the same object and Reason. If empty, it is the Note. Set it if the Note
	// contains something that changes each time, such as a process ID.
	Topic string
	// Local: the sentence is about this node, and each node has its own Event. Otherwise it follows from the cluster's
	// objects alone, and all proxies of the cluster report it as one Event.
	Local bool
}

// dedupKey identifies an Event that must not be repeated.
type dedupKey struct {
	regarding     Reference
	reason, topic string
}

func (e Event) sentence() dedupKey { return dedupKey{e.Regarding, e.Reason, cmp.Or(e.Topic, e.Note)} }

// Reference names the object that an Event is about.
type Reference struct {
	Kind      string // "Service", "EndpointSlice", "ServiceCIDR", "Node" or "ServiceDemand"
	Namespace string // empty if the kind has none
	Name      string
	// UID is the object's metadata.uid. kubectl describe looks for it: without it only kubectl get events finds the Event.
	UID string
}

// String returns the reference as a person writes it: "Service shop/web", or "Node node-1".
func (r Reference) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}

// Node refers to a node. Its UID is its name: kubelet and kube-proxy refer to nodes so, and kubectl describe node
// looks for both that and metadata.uid.
func Node(name string) Reference { return Reference{Kind: "Node", Name: name, UID: name} }
