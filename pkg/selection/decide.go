package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Decision is a selection with its subject and its input: everything that handlers need.
type Decision struct {
	// Viewpoint is the node that the decision holds for, with its data about other nodes at that time.
	Viewpoint NodeView
	Service   *model.Service
	Port      model.ServicePort
	Family    model.Family
	// ForAddresses is set if the decision is about the addresses of a headless Service for all ports. Port is then empty.
	ForAddresses bool
	// Frontends lead to the port. LostFrontends are those that the Service requests but another Service owns.
	Frontends     []model.PortFrontend
	LostFrontends []model.LostFrontend
	// Endpoints are those of the port. Skipped counts the endpoints beyond the limit of a Service.
	Endpoints []model.PortEndpoint
	Skipped   int
	// Hostnames are the names of endpoints below a headless Service's name, by address, for endpoints that have one.
	Hostnames map[netip.Addr]string
	// Sources are the clients that may connect to a load balancer's address, see model.Service.AllowedSources.
	Sources   []netip.Prefix
	Selection Selection
}

// Decide decides for every port of a Service in every family in which it has a ClusterIP, in the order of the ports. It
// returns nil for a Service that does not exist. For a headless Service it decides about the addresses of each family,
// and about each port in it. It may be called concurrently for different Services, but not concurrently with changes of
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
