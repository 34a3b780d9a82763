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
	fullNode      role = iota // a Node in full: it counts at once, whatever other providers say
	peerNode                  // the labels of one of the other nodes each
	nodeSlice                 // the labels of several nodes each
	supplement                // labels that are added to those that others say
	demotionLabel             // why a node is avoided
)

// provider is a kind of object that says something about nodes.
type provider struct {
	kind *convert.Kind
	role role
	// resource is the name of its watch in messages and outages. Empty: the kind's.
	resource string
	// source is the source of the other nodes' labels that it belongs to: the kinds of one are followed together.
	source string
	// omitsDeleted: if an object of several nodes no longer lists a node, the node is gone.
	omitsDeleted bool
	// listIsFinal: labels that a complete list does not have will not be published.
	listIsFinal bool
	// reason is the reason.
	reason model.DemotionReason
}

// providers are all of them, by what they say. Reasons that labels give are rows of model.Why.
var providers = append([]provider{
	{kind: convert.Nodes, role: fullNode},
	{kind: convert.OtherNodes, role: peerNode, source: model.TopologyFromNodes, resource: model.TopologyFromNodes, omitsDeleted: true},
	{
		kind: convert.TopologySlices, role: nodeSlice, source: model.TopologyFromSlices, resource: model.TopologyFromSlices,
		omitsDeleted: true, listIsFinal: true,
	},
	// If a node has no proxy, the proxy is mostly being replaced.
	{kind: convert.ProxySlices, role: nodeSlice, source: model.TopologyFromProxies, resource: model.TopologyFromProxies},
	{kind: convert.NodesWithDemand, role: supplement, source: model.TopologyFromProxies, resource: "nodes/demand"},
	{kind: convert.ControlPlaneNodes, role: supplement, source: model.TopologyFromProxies, resource: "nodes/control-plane"},
}, reasons()...)

func reasons() (rows []provider) {
	for why, kind := range convert.Avoided {
		if kind != nil {
			reason := model.DemotionReason(why)
			rows = append(rows, provider{kind: kind, role: demotionLabel, resource: "nodes/" + reason.String(), reason: reason})
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

// KindsOf yields the kinds that together make up a source of where the other nodes are, each with the name of its watch in
// messages and outages.
func KindsOf(source string) iter.Seq2[*convert.Kind, string] {
	return func(yield func(*convert.Kind, string) bool) {
		for _, provider := range providers {
			if provider.source == source && !yield(provider.kind, provider.resource) {
				return
			}
		}
	}
}

// DemotionKinds yields the kinds that say which nodes to avoid, each with its name in messages and outages. An API server is
// asked for them by a label of Nodes.
func DemotionKinds(yield func(kind *convert.Kind, resource string) bool) {
	for _, provider := range providers {
		if provider.role == demotionLabel && !yield(provider.kind, provider.resource) {
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

// IsPeerSource reports whether the objects of a kind say where the other nodes are.
func IsPeerSource(kind *convert.Kind) bool {
	provider := providerOf(kind)
	return provider != nil && provider.role != fullNode && provider.role != demotionLabel
}

// IsDemotionKind reports whether the objects of a kind say which nodes to avoid.
func IsDemotionKind(kind *convert.Kind) bool {
	provider := providerOf(kind)
	return provider != nil && provider.role == demotionLabel
}

// DescribesNodes reports whether the objects of a kind say something about nodes.
func DescribesNodes(kind *convert.Kind) bool { return providerOf(kind) != nil }

// How long things wait at most.
const (
	// LabelTimeout is how long Services wait at most for the labels of the other nodes after those are asked for, and for a
	// label that came into use until it is published. Usually it takes less than a second. If the list does not come at
	// all, because the proxy lacks the permission to list nodes, waiting would keep every change of those Services from
	// their clients, and at the start every Service. So after this time they are served with the known state: an endpoint
	// on an unknown node matches only `*`.
	LabelTimeout = 10 * time.Second
	// NodeRetention is how long a node is remembered after its slice is gone. A publisher deletes a slice that is empty, or
	// whose nodes are in another one; but when the resource itself is removed, all slices go, and with them all knowledge
	// about nodes. By the end of this time it is clear that nobody publishes, and Nodes are followed. Remembering a node
	// that is gone does no harm.
	NodeRetention = 3 * time.Minute
	// checkTimeout is how long a node is avoided at most while we ask whether it exists.
	checkTimeout = 3 * time.Second
	// deletedNodeRetention is how long a node is avoided that went while it was. EndpointSlices list its pods until Kubernetes has deleted
	// them: 80 s at most (quarantineTime, and two of gcCheckPeriod, in pkg/controller/podgc).
	deletedNodeRetention = 2 * time.Minute
)

// isZoneOrDemand reports whether a label states the zone of a node or its demand. The proxies' own slices know these, with the
// few Nodes that complement them.
func isZoneOrDemand(key policy.Key) bool {
	return key == policy.Zone || slices.Contains(policy.DemandLabels[:], key)
}
