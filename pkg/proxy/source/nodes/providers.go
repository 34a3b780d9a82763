package nodes

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// role is what the objects of a kind say of nodes.
type role int

const (
	whole   role = iota // a Node in full: it counts at once, whatever other providers say
	single              // the labels of one of the other nodes each
	several             // the labels of several nodes each
	added               // labels that are added to those that others say
	reason              // why a node is avoided
)

// provider is a kind of object that says something of nodes.
type provider struct {
	kind *convert.Kind
	role role
	// leavesOut: that an object of several nodes does not list one any more means that the node is gone.
	leavesOut bool
	// isFinal: labels that a complete list does not have will not be published.
	isFinal bool
	// why is the reason, label the one that gives it, avoid what a node's labels hold against it for that reason, and resource
	// what the watch by the label is called in messages and outages.
	why      model.Why
	label    string
	avoid    func(labels map[string]string) *model.Avoid
	resource string
}

// providers are all of them, by what they say.
var providers = []provider{
	{kind: convert.Nodes, role: whole},
	{kind: convert.OtherNodes, role: single, leavesOut: true},
	{kind: convert.TopologySlices, role: several, leavesOut: true, isFinal: true},
	{kind: convert.ProxySlices, role: several}, // a node without a proxy is one whose proxy is replaced just now, mostly
	{kind: convert.NodesWithDemand, role: added},
	{kind: convert.ControlPlaneNodes, role: added},
	{
		kind: convert.Evacuations, role: reason,
		why: model.Evacuated, label: policy.EvacuateLabel, avoid: convert.Evacuation, resource: "nodes/evacuated",
	},
}

// Reasons yields the kinds that say which nodes to avoid, each with what it is called in messages and outages. An API server
// is asked for them by a label of Nodes.
func Reasons(yield func(kind *convert.Kind, resource string) bool) {
	for _, provider := range providers {
		if provider.role == reason && !yield(provider.kind, provider.resource) {
			return
		}
	}
}

// LabelOf returns the label that is a reason to avoid a node; empty if none is.
func LabelOf(why model.Why) string {
	for _, provider := range providers {
		if provider.role == reason && provider.why == why {
			return provider.label
		}
	}
	return ""
}

func providerOf(kind *convert.Kind) *provider {
	at := slices.IndexFunc(providers, func(p provider) bool { return p.kind == kind })
	if at < 0 {
		return nil
	}
	return &providers[at]
}

// AreOthers reports whether the objects of a kind say where the other nodes are.
func AreOthers(kind *convert.Kind) bool {
	provider := providerOf(kind)
	return provider != nil && provider.role != whole && provider.role != reason
}

// IsReason reports whether the objects of a kind say which nodes to avoid.
func IsReason(kind *convert.Kind) bool {
	provider := providerOf(kind)
	return provider != nil && provider.role == reason
}

// Speaks reports whether the objects of a kind say something of nodes.
func Speaks(kind *convert.Kind) bool { return providerOf(kind) != nil }

// How long things take until they happen all the same.
const (
	// Patience is how long Services wait at most for the labels of the other nodes, from when those are asked for, and for
	// a label that came into use until it is published. Usually it takes less than a second. If the list does not come at
	// all, because the proxy lacks the permission to list nodes, waiting would keep every change of those Services from
	// their clients, and at the start every Service. So after this time they are served with what is known: an endpoint on
	// an unknown node matches only `*`.
	Patience = 10 * time.Second
	// Remembrance is how long a node is remembered whose slice is gone. A publisher deletes a slice that is empty, or
	// whose nodes are in another one; but when the resource is removed, all slices go, and with them all that is known of
	// nodes. By then it shows that nobody publishes, and Nodes are followed. To know of a node that is gone does no harm.
	Remembrance = 3 * time.Minute
	// answerPatience is how long a node is avoided at most while it is asked whether it is there.
	answerPatience = 3 * time.Second
	// askAgainAfter is how soon it is asked again whether a node that is gone is back.
	askAgainAfter = time.Minute
)

// asksFor reports whether a label says the zone of a node or how much it asks. Those the proxies' own slices have, with the
// few Nodes beside them.
func asksFor(key policy.Key) bool {
	return key == policy.Zone || slices.Contains(policy.DemandLabels[:], key)
}
