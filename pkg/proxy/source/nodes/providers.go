package nodes

import (
	"iter"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// role is how objects of a kind describe nodes.
type role int

const (
	fullNode      role = iota // a Node in full: it takes precedence over all other providers
	peerNode                  // the labels of one other node each
	nodeSlice                 // the labels of several nodes each
	supplement                // labels that are added to those of other providers
	demotionLabel             // the label that demotes a node
)

// provider is a kind of object that describes nodes.
type provider struct {
	kind *convert.Kind
	role role
	// resource is the name of its watch in messages and interruptions; the kind's if empty.
	resource string
	// source is the source of other nodes' labels that it belongs to. All kinds of a source are watched together.
	source string
	// omitsDeleted means that a node is deleted if its source no longer lists it.
	omitsDeleted bool
	// listIsFinal means that labels that are missing in a complete list will not be published.
	listIsFinal bool
	// reason is the demotion reason of a demotionLabel.
	reason model.DemotionReason
}

// providers are all providers, by role. The reasons that labels cause are rows of demotionReasons in package model.
var providers = append([]provider{
	{kind: convert.Nodes, role: fullNode},
	{kind: convert.OtherNodes, role: peerNode, source: model.TopologyFromNodes, resource: model.TopologyFromNodes, omitsDeleted: true},
	{
		kind: convert.TopologySlices, role: nodeSlice, source: model.TopologyFromSlices, resource: model.TopologyFromSlices,
		omitsDeleted: true, listIsFinal: true,
	},
	// If a node has no proxy, the proxy is usually being replaced.
	{kind: convert.ProxySlices, role: nodeSlice, source: model.TopologyFromProxies, resource: model.TopologyFromProxies},
	{kind: convert.NodesWithDemand, role: supplement, source: model.TopologyFromProxies, resource: "nodes/demand"},
	{kind: convert.ControlPlaneNodes, role: supplement, source: model.TopologyFromProxies, resource: "nodes/control-plane"},
}, demotionProviders()...)

func demotionProviders() (rows []provider) {
	for i, kind := range convert.NodesByDemotionReason {
		if kind != nil {
			reason := model.DemotionReason(i)
			rows = append(rows, provider{kind: kind, role: demotionLabel, resource: "nodes/" + reason.String(), reason: reason})
		}
	}
	return rows
}

// Kinds yields all kinds that describe nodes.
func Kinds(yield func(kind *convert.Kind) bool) {
	for _, provider := range providers {
		if !yield(provider.kind) {
			return
		}
	}
}

// KindsOf yields the kinds that together form a source of other nodes' labels, each with the name of its watch in
// messages and interruptions.
func KindsOf(source string) iter.Seq2[*convert.Kind, string] {
	return func(yield func(*convert.Kind, string) bool) {
		for _, provider := range providers {
			if provider.source == source && !yield(provider.kind, provider.resource) {
				return
			}
		}
	}
}

// DemotionKinds yields the kinds that demote nodes, each with its name in messages and interruptions. An API server
// selects them by a label of Nodes.
func DemotionKinds(yield func(kind *convert.Kind, resource string) bool) {
	for _, provider := range providers {
		if provider.role == demotionLabel && !yield(provider.kind, provider.resource) {
			return
		}
	}
}

func providerOf(kind *convert.Kind) *provider {
	i := slices.IndexFunc(providers, func(p provider) bool { return p.kind == kind })
	if i < 0 {
		return nil
	}
	return &providers[i]
}

// IsPeerSource reports whether the objects of a kind describe other nodes.
func IsPeerSource(kind *convert.Kind) bool {
	provider := providerOf(kind)
	return provider != nil && provider.role != fullNode && provider.role != demotionLabel
}

// IsDemotionKind reports whether the objects of a kind demote nodes.
func IsDemotionKind(kind *convert.Kind) bool {
	provider := providerOf(kind)
	return provider != nil && provider.role == demotionLabel
}

// DescribesNodes reports whether the objects of a kind describe nodes.
func DescribesNodes(kind *convert.Kind) bool { return providerOf(kind) != nil }

// Timeouts and retention times.
const (
	// LabelTimeout bounds how long Services wait for the labels of the other nodes after these are requested, and for a
	// label that came into use until it is published. Usually it takes less than a second. If the list never arrives,
	// because the proxy lacks the permission to list nodes, waiting would hide every change of those Services from their
	// clients, and at the start every Service. So after this time they are served with the known state: an endpoint on an
	// unknown node matches only `*`.
	LabelTimeout = 10 * time.Second
	// NodeRetention is how long a node is kept after its slice is deleted. A publisher deletes a slice that is empty, or
	// whose nodes are in another one. But when the resource itself is removed, all slices are deleted, and with them all
	// known nodes. By the end of this time it is clear that there is no publisher, and Nodes are watched. Keeping a
	// deleted node does no harm.
	NodeRetention = 3 * time.Minute
	// checkTimeout bounds how long a node stays demoted while an existence check is pending.
	checkTimeout = 3 * time.Second
	// deletedNodeRetention is how long a node stays demoted that was deleted while it was demoted. EndpointSlices list its
	// pods until Kubernetes has deleted them: 80 s at most (quarantineTime, and two of gcCheckPeriod, in
	// pkg/controller/podgc).
	deletedNodeRetention = 2 * time.Minute
)

// isZoneOrDemand reports whether a label states the zone of a node or its demand. The proxies' own slices, together
// with the few Nodes that complement them, contain these.
func isZoneOrDemand(key policy.Key) bool {
	return key == policy.Zone || slices.Contains(policy.DemandLabels[:], key)
}
