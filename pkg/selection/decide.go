package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Decision is a selection together with its subject and its input: everything that its readers need.
type Decision struct {
	// Viewpoint is where the decision was made: the node it holds for, and what was known there of other nodes.
	Viewpoint NodeView
	Service   *model.Service
	Port      model.ServicePort
	Family    model.Family
	// IsOfAddresses: it is about the addresses of a headless Service, whatever their ports; Port is empty then.
	IsOfAddresses bool
	// Frontends are the frontends that lead to the port; Lost are those that it asks for but another Service owns.
	Frontends     []model.PortFrontend
	LostFrontends []model.LostFrontend
	// Endpoints are the port's; LeftOut is how many more there are than a Service can have.
	Endpoints []model.PortEndpoint
	Skipped   int
	// Hostnames are the names of endpoints below a headless Service's name, by address; endpoints without one are missing.
	Hostnames map[netip.Addr]string
	// Sources are the clients that may dial a load balancer's address: see model.Service.AllowedSources.
	Sources   []netip.Prefix
	Selection Selection
}

// Decide decides for every port of a Service in every family in which it has a ClusterIP, in the order of the ports. A
// Service that does not exist has no ports. For a headless Service it decides about the addresses of each family, and
// about each port in it. Decisions about different Services may be made concurrently, as long as nothing is applied to
// the nodes.
func (p *Planner) Decide(name model.ObjectName, families []model.Family) []Decision {
	cluster := p.cluster
	service := cluster.Service(name)
	if service == nil {
		return nil
	}
	viewpoint, joined := p.viewpoint(), model.JoinSlices(service, cluster.SlicesOf(name))
	if service.IsHeadless {
		return p.decideHeadless(service, joined, viewpoint, families)
	}
	sources := map[model.Family][]netip.Prefix{}
	for _, family := range families {
		sources[family] = service.AllowedSources(family, viewpoint.Node)
	}
	decisions := make([]Decision, 0, len(service.ClusterIPs)*len(service.Ports))
	for _, port := range service.Ports {
		for _, family := range families {
			if _, ok := service.ClusterIP(family); !ok {
				continue
			}
			decision := Decision{Viewpoint: viewpoint, Service: service, Port: port, Family: family, Sources: sources[family]}
			decision.Viewpoint.plan = p.planOf(&decision)
			decision.Frontends, decision.LostFrontends = cluster.Frontends(service, port, family)
			decision.Endpoints, decision.Skipped = joined.Endpoints(port, family)
			cluster.MarkDemoted(decision.Endpoints)
			decision.Selection = Select(service, service.IsExternal(port, family), decision.Endpoints, decision.Viewpoint)
			decisions = append(decisions, decision)
		}
	}
	return decisions
}
