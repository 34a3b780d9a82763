package nodes

import (
	"iter"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// role is what the objects of a kind say about nodes.
type role int

const (
	whole   role = iota // a Node in full: it counts at once, whatever other providers say
	single              // the labels of one of the other nodes each
	several             // the labels of several nodes each
	added               // labels that are added to those that others say
	reason              // why a node is avoided
)

// provider is a kind of object that says something about nodes.
type provider struct {
	kind *convert.Kind
	role role
	// resource is the name of its watch in messages and outages. Empty: the kind's.
	resource string
	// source is the source of the other nodes' labels that it belongs to: the kinds of one are followed together.
	source string
	// leavesOut: if an object of several nodes no longer lists a node, the node is gone.
	leavesOut bool
	// isFinal: labels that a complete list does not have will not be published.
	isFinal bool
	// why is the reason.
	why model.Why
}

// providers are all of them, by what they say. Reasons that labels give are rows of model.Why.
var providers = append([]provider{
	{kind: convert.Nodes, role: whole},
	{kind: convert.OtherNodes, role: single, source: model.FromNodes, resource: model.FromNodes, leavesOut: true},
	{
		kind: convert.TopologySlices, role: several, source: model.FromSlices, resource: model.FromSlices,
		leavesOut: true, isFinal: true,
	},
	// If a node has no proxy, the proxy is mostly being replaced.
	{kind: convert.ProxySlices, role: several, source: model.FromProxySlices, resource: model.FromProxySlices},
	{kind: convert.NodesWithDemand, role: added, source: model.FromProxySlices, resource: "nodes/demand"},
	{kind: convert.ControlPlaneNodes, role: added, source: model.FromProxySlices, resource: "nodes/control-plane"},
}, reasons()...)

func reasons() (rows []provider) {
	for why, kind := range convert.Avoided {
		if kind != nil {
			why := model.Why(why)
			rows = append(rows, provider{kind: kind, role: reason, resource: "nodes/" + why.String(), why: why})
		}
	}
	return rows
}

// Kinds yields all kinds that say something about nodes.
func Kinds(yield func(kind *convert.Kind) bool) {
	for _, provider := range providers {
		if !yield(provider.kind) {
			return
		}
	}
}

// From yields the kinds that together make up a source of where the other nodes are, each with the name of its watch in
// messages and outages.
func From(source string) iter.Seq2[*convert.Kind, string] {
	return func(yield func(*convert.Kind, string) bool) {
		for _, provider := range providers {
			if provider.source == source && !yield(provider.kind, provider.resource) {
				return
			}
		}
	}
}

// Reasons yields the kinds that say which nodes to avoid, each with its name in messages and outages. An API server is
// asked for them by a label of Nodes.
func Reasons(yield func(kind *convert.Kind, resource string) bool) {
	for _, provider := range providers {
		if provider.role == reason && !yield(provider.kind, provider.resource) {
			return
		}
	}
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

// Speaks reports whether the objects of a kind say something about nodes.
func Speaks(kind *convert.Kind) bool { return providerOf(kind) != nil }

// How long things wait at most.
const (
	// Patience is how long Services wait at most for the labels of the other nodes after those are asked for, and for a
	// label that came into use until it is published. Usually it takes less than a second. If the list does not come at
	// all, because the proxy lacks the permission to list nodes, waiting would keep every change of those Services from
	// their clients, and at the start every Service. So after this time they are served with the known state: an endpoint
	// on an unknown node matches only `*`.
	Patience = 10 * time.Second
	// Remembrance is how long a node is remembered after its slice is gone. A publisher deletes a slice that is empty, or
	// whose nodes are in another one; but when the resource itself is removed, all slices go, and with them all knowledge
	// about nodes. By the end of this time it is clear that nobody publishes, and Nodes are followed. Remembering a node
	// that is gone does no harm.
	Remembrance = 3 * time.Minute
	// answerPatience is how long a node is avoided at most while we ask whether it exists.
	answerPatience = 3 * time.Second
	// goneFor is how long a node is avoided that went while it was. EndpointSlices list its pods until Kubernetes has deleted
	// them: 80 s at most (quarantineTime, and two of gcCheckPeriod, in pkg/controller/podgc).
	goneFor = 2 * time.Minute
)

// asksFor reports whether a label states the zone of a node or its demand. The proxies' own slices know these, with the
// few Nodes that complement them.
func asksFor(key policy.Key) bool {
	return key == policy.Zone || slices.Contains(policy.DemandLabels[:], key)
}
