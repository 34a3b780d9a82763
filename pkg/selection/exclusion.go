package selection

import (
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Exclusions returns the endpoints that neither choice contains, each with the reason, in the order of the decision's
// endpoints.
func (d Decision) Exclusions() []Exclusion {
	chosen := map[netip.AddrPort]bool{}
	for _, endpoint := range d.Selection.Cluster.Endpoints {
		chosen[endpoint.Addr] = true
	}
	if local := d.Selection.Local; local != nil {
		for _, endpoint := range local.Endpoints {
			chosen[endpoint.Addr] = true
		}
	}
	var exclusions []Exclusion
	for i := range d.Endpoints {
		if endpoint := &d.Endpoints[i]; !chosen[endpoint.Addr] {
			exclusions = append(exclusions, Exclusion{Endpoint: endpoint.Addr, Reason: d.exclusionReason(i)})
		}
	}
	return exclusions
}

// exclusionReason returns the reason why the endpoint with the given index is in no choice.
func (d Decision) exclusionReason(i int) Reason {
	endpoint, share := &d.Endpoints[i], d.Selection.Cluster.Share
	switch {
	case d.isStandby(endpoint):
		return standbyReason(endpoint)
	case share != nil && hasRank(endpoint, share.Rank) && d.Viewpoint.allows(d.Service.Topology.Keys, endpoint):
		return d.Selection.noSlotReason(i)
	}
	return d.Selection.exclusionReason(endpoint, d.Viewpoint)
}

// isStandby reports whether an endpoint could be used but for its node's demotion, while other endpoints serve.
func (d Decision) isStandby(endpoint *model.PortEndpoint) bool {
	chosen := d.Selection.Cluster.Endpoints
	if len(chosen) == 0 || endpoint.Demotion.Level() <= chosen[0].Demotion.Level() {
		return false
	}
	isForLocal := d.Selection.Local != nil && d.Viewpoint.isLocal(endpoint)
	_, usable := endpoint.Rank()
	return usable && !isForLocal && d.Viewpoint.allows(d.Service.Topology.Keys, endpoint)
}

// exclusionReason derives the reason from the cluster choice if there is one, because that considers the endpoints of
// all nodes. Each policy has connections that the cluster choice serves: to the ClusterIP, or from pods and this node
// to the other frontends.
func (s Selection) exclusionReason(endpoint *model.PortEndpoint, viewpoint NodeView) Reason {
	reason, chosen := s.Cluster.Reason, s.Cluster.Endpoints
	rank, usable := endpoint.Rank()
	switch {
	case !usable:
		return Reason{Code: NotReady}
	case s.Local != nil && viewpoint.isLocal(endpoint):
		// The local choice then has ready endpoints, and this one is terminating. That is the reason, even if the cluster
		// choice has another reason.
		return Reason{Code: TerminatingNotNeeded}
	case reason.Code == ClusterChoiceUnused:
		return Reason{Code: NotOnThisNode, Key: internalTrafficPolicy}
	case reason.Code == NodeHasNoTopologyLabel:
		return reason
	case len(chosen) == 0:
		return viewpoint.mismatchReason(endpoint, policy.Key(reason.Key))
	}
	first, _ := chosen[0].Rank()
	switch {
	case s.Cluster.Share != nil && rank < first:
		return viewpoint.mismatchReason(endpoint, s.Cluster.Share.KeyResults[len(s.Cluster.Share.KeyResults)-1].Key)
	case endpoint.Phase() == model.PhaseTerminating && chosen[0].Phase() == model.PhaseReady && rank > first:
		return Reason{Code: TerminatingNotNeeded}
	case s.Cluster.Tier == TierForNodes:
		return hintedElsewhere(TierForNodes, endpoint.HintNodes)
	case s.Cluster.Tier == TierForZones:
		return hintedElsewhere(TierForZones, endpoint.HintZones)
	}
	return viewpoint.mismatchReason(endpoint, policy.Key(reason.Key))
}

func hintedElsewhere(kind string, names []string) Reason {
	return Reason{Code: HintedElsewhere, Key: kind, Value: strings.Join(names, ", ")}
}

// mismatchReason returns the reason why an endpoint does not have this node's value of a key.
func (v NodeView) mismatchReason(endpoint *model.PortEndpoint, key policy.Key) Reason {
	if value, known := v.ValueOf(endpoint, key); known {
		return Reason{Code: OtherTopologyValue, Key: string(key), Value: value}
	}
	if endpoint.Node == "" {
		return Reason{Code: EndpointHasNoNode, Key: string(key)}
	}
	if _, known := v.labelsOf(endpoint.Node); !known {
		return Reason{Code: EndpointNodeUnknown, Key: string(key), Value: endpoint.Node}
	}
	return Reason{Code: EndpointHasNoTopologyLabel, Key: string(key), Value: endpoint.Node}
}
