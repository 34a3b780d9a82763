package selection

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// decideHeadless decides which endpoints of a headless Service DNS returns to this node's clients. Only ready ones are
// eligible, as the specification of Kubernetes' DNS requires: a terminating one may be gone before the record expires.
func (p *Planner) decideHeadless(
	service *model.Service, joined model.JoinedSlices, viewpoint NodeView, families []model.Family,
) []Decision {
	hostnames := joined.Hostnames()
	decisions := make([]Decision, 0, len(families)*(1+len(service.Ports)))
	for _, family := range families {
		addresses := Decision{Viewpoint: viewpoint, Service: service, Family: family, ForAddresses: true, Hostnames: hostnames}
		addresses.Endpoints, addresses.Skipped = joined.Addresses(family)
		decisions = append(decisions, p.chooseReady(addresses))
		for _, port := range service.Ports {
			decision := Decision{Viewpoint: viewpoint, Service: service, Port: port, Family: family, Hostnames: hostnames}
			decision.Endpoints, decision.Skipped = joined.Endpoints(port, family)
			decisions = append(decisions, p.chooseReady(decision))
		}
	}
	return decisions
}

func (p *Planner) chooseReady(decision Decision) Decision {
	decision.Viewpoint.plan = p.planOf(&decision)
	p.cluster.MarkDemoted(decision.Endpoints)
	for i := range decision.Endpoints {
		endpoint := &decision.Endpoints[i]
		endpoint.Serving = endpoint.Serving && endpoint.Ready
	}
	decision.Selection = Select(decision.Service, false, decision.Endpoints, decision.Viewpoint)
	return decision
}
