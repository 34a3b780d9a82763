package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Select decides which endpoints of a Service port this node uses. The endpoints are those of the port in one family,
// as model.JoinedSlices.Endpoints returns them: no two have the same address and port. The port is external if it has a
// frontend that externalTrafficPolicy governs: a node port, an external IP or a load balancer's (KEP-2086).
//
// A first sync calls it with every endpoint of the cluster, so it formats no text and allocates at most once per
// choice.
func Select(service *model.Service, external bool, endpoints []model.PortEndpoint, viewpoint NodeView) Selection {
	selection := Selection{
		Cluster:           Choice{Reason: Reason{Code: ClusterChoiceUnused}},
		HasUsableEndpoint: anyUsable(endpoints),
		internalLocal:     service.InternalTrafficLocal,
		externalLocal:     service.ExternalTrafficLocal && external,
	}
	if !service.InternalTrafficLocal || external {
		selection.Cluster = selectCluster(service, endpoints, viewpoint)
	}
	switch {
	case service.InternalTrafficLocal:
		selection.Local = selectLocal(internalTrafficPolicy, endpoints, viewpoint)
	case service.ExternalTrafficLocal && external:
		selection.Local = selectLocal(externalTrafficPolicy, endpoints, viewpoint)
	}
	return selection
}

// selectCluster chooses among the endpoints of all nodes. Topology keys take precedence over hints: keys are the
// owner's choice, hints that of a controller.
func selectCluster(service *model.Service, endpoints []model.PortEndpoint, viewpoint NodeView) Choice {
	if service.Topology.MaxLoad > 0 {
		return selectBounded(service, endpoints, viewpoint)
	}
	return withDemotions(endpoints, func(endpoints []model.PortEndpoint) Choice {
		if len(service.Topology.Keys) > 0 {
			return selectByKeys(service.Topology.Keys, endpoints, viewpoint)
		}
		return selectByHints(endpoints, viewpoint)
	})
}

func anyUsable(endpoints []model.PortEndpoint) bool {
	for i := range endpoints {
		if endpoints[i].Phase() != model.PhaseNever {
			return true
		}
	}
	return false
}

// filterEndpoints returns the endpoints that a test accepts: the given slice itself if it accepts all, nil if it
// accepts none.
func filterEndpoints(endpoints []model.PortEndpoint, accepts func(*model.PortEndpoint) bool) []model.PortEndpoint {
	count := 0
	for i := range endpoints {
		if accepts(&endpoints[i]) {
			count++
		}
	}
	switch count {
	case 0:
		return nil
	case len(endpoints):
		return slices.Clip(endpoints)
	}
	picked := make([]model.PortEndpoint, 0, count)
	for i := range endpoints {
		if accepts(&endpoints[i]) {
			picked = append(picked, endpoints[i])
		}
	}
	return picked
}

// pickPhase returns the endpoints of a phase.
func pickPhase(endpoints []model.PortEndpoint, phase model.Phase) []model.PortEndpoint {
	return filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool { return endpoint.Phase() == phase })
}

// noneUsable returns the choice if no endpoint can be used at all.
func noneUsable(endpoints []model.PortEndpoint) Choice {
	if len(endpoints) == 0 {
		return Choice{Reason: Reason{Code: NoEndpoints}}
	}
	return Choice{Reason: Reason{Code: NoUsableEndpoints}}
}
