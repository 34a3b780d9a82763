package selection

import (
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Exclusions returns the endpoints that neither choice contains, in the order given, each with the reason. The endpoints and
// the viewpoint must be those that the selection was made from.
func (s Selection) Exclusions(endpoints []model.PortEndpoint, from Viewpoint) []Exclusion {
	var exclusions []Exclusion
	cluster, local := s.Cluster.Endpoints, []model.PortEndpoint(nil)
	if s.Local != nil {
		local = s.Local.Endpoints
	}
	for i := range endpoints {
		endpoint := &endpoints[i]
		inCluster, inLocal := next(&cluster, endpoint), next(&local, endpoint)
		if !inCluster && !inLocal {
			exclusions = append(exclusions, Exclusion{Endpoint: endpoint.Addr, Reason: s.whyExcluded(endpoint, from)})
		}
	}
	return exclusions
}

// next reports whether an endpoint is the first of those chosen, and takes it off if so. Choices keep the order of the
// endpoints, so walking both side by side finds them all.
func next(chosen *[]model.PortEndpoint, endpoint *model.PortEndpoint) bool {
	if len(*chosen) == 0 || (*chosen)[0].Addr != endpoint.Addr {
		return false
	}
	*chosen = (*chosen)[1:]
	return true
}

// whyExcluded looks at the cluster choice where there is one, because it considered the endpoints of every node. Each policy
// has connections that it serves: to the ClusterIP, or from the pods and this node to the other frontends.
func (s Selection) whyExcluded(endpoint *model.PortEndpoint, from Viewpoint) Reason {
	reason, endpointPhase := s.Cluster.Reason, phaseOf(endpoint)
	switch {
	case endpointPhase == phaseNever:
		return Reason{Code: NotReady}
	case s.Local != nil && from.isHere(endpoint):
		// The local choice is ready ones then, for whatever reason the cluster choice leaves it out besides.
		return Reason{Code: TerminatingNotNeeded}
	case reason.Code == ClusterNotUsed:
		return Reason{Code: NotOnThisNode, Key: internalTrafficPolicy}
	case reason.Code == NodeHasNoTopologyLabel:
		return reason
	case reason.Code == NoTopologyMatch || reason.Code == MatchedTopologyKeyTerminating:
		return from.whyNoMatch(endpoint, policy.Key(reason.Key))
	case endpointPhase == phaseTerminating:
		// The chosen ones are ready: where terminating ones are chosen without a key, none of them is left out.
		return Reason{Code: TerminatingNotNeeded}
	case s.Cluster.Tier == TierForNodes:
		return hintedElsewhere(TierForNodes, endpoint.HintNodes)
	case s.Cluster.Tier == TierForZones:
		return hintedElsewhere(TierForZones, endpoint.HintZones)
	}
	return from.whyNoMatch(endpoint, policy.Key(reason.Key))
}

func hintedElsewhere(kind string, places []string) Reason {
	return Reason{Code: HintedElsewhere, Key: kind, Value: strings.Join(places, ", ")}
}

// whyNoMatch is why an endpoint does not have this node's value of a key.
func (v Viewpoint) whyNoMatch(endpoint *model.PortEndpoint, key policy.Key) Reason {
	if value, known := v.valueOf(endpoint, key); known {
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
