package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// SetView makes the planner decide for another node from now on: view is the cluster as that node sees it
// (model.Cluster.ViewFrom). Results that do not depend on the node are computed once, so decisions for all nodes cost
// the sum of the nodes and of the endpoints of each decision. From then on, decisions must not be made concurrently,
// and the cluster must not change.
func (p *Planner) SetView(view *model.Cluster) {
	p.cluster = view
	if p.cache == nil {
		p.cache = &viewCache{demands: map[model.ObjectName]cachedDemand{}, plans: map[planKey]*portPlan{}}
	}
}

// viewCache caches results for the decisions of other nodes.
type viewCache struct {
	demands map[model.ObjectName]cachedDemand
	plans   map[planKey]*portPlan
}

type cachedDemand struct {
	demand  balance.Demand
	isKnown bool
}

// planKey identifies a port in a family, or the addresses of a headless Service.
type planKey struct {
	model.PortID
	forAddresses bool
}

// planOf returns the cached plan for the endpoints of a decision, or nil without caching.
func (p *Planner) planOf(decision *Decision) *portPlan {
	if p.cache == nil || decision.Service.Topology.MaxLoad == 0 {
		return nil
	}
	port := planKey{decision.Service.PortID(decision.Port, decision.Family), decision.ForAddresses}
	if p.cache.plans[port] == nil {
		p.cache.plans[port] = &portPlan{}
	}
	return p.cache.plans[port]
}

// portPlan is the plan for one port. It is the same for all nodes with the same view of the port's endpoints.
type portPlan struct {
	endpoints       []model.PortEndpoint
	endpointClasses *balance.EndpointClasses
	hashes          []uint32
	plan            *balance.Plan
	loads           *Loads
}

// share returns a node's share of the plan, and the record of the plan. It plans again if the endpoints differ from
// those of the cached plan.
func (p *portPlan) share(
	service *model.Service, endpoints []model.PortEndpoint, demand balance.Demand, viewpoint NodeView,
) (planRecord, balance.Share) {
	if p.plan == nil || !slices.EqualFunc(p.endpoints, endpoints, isPlannedAlike) {
		record := newPlanRecord(service, endpoints, viewpoint)
		*p = portPlan{
			endpoints: endpoints, endpointClasses: record.endpointClasses, hashes: record.hashes,
			plan: balance.NewPlan(demand, record.endpointClasses, int(service.Topology.MaxLoad)),
		}
	}
	return planRecord{endpointClasses: p.endpointClasses, hashes: p.hashes}, p.plan.Share(viewpoint.Node.Name, viewpoint.Node.Labels)
}

// isPlannedAlike reports whether a plan treats two endpoints alike.
func isPlannedAlike(a, b model.PortEndpoint) bool {
	rankOfA, isUsableA := a.ClusterWideRank()
	rankOfB, isUsableB := b.ClusterWideRank()
	return a.Addr == b.Addr && a.Node == b.Node && a.Zone == b.Zone && rankOfA == rankOfB && isUsableA == isUsableB
}

// UsedByKey returns, for each key of a share, how many of the chosen endpoints get some of the connections that this
// node sends to the key's endpoints. The decision must be of a planner that caches plans (SetView). It returns nil
// without a share.
func (d *Decision) UsedByKey() []int {
	chosen, cached := d.Selection.Cluster, d.Viewpoint.plan
	if chosen.Share == nil || cached == nil || cached.plan == nil {
		return nil
	}
	used := make([]int, len(chosen.Share.KeyResults))
	for _, allocation := range cached.plan.Allocations(d.Viewpoint.Node.Name, d.Viewpoint.Node.Labels) {
		rest := chosen.Endpoints
		for i := range d.Endpoints {
			if allocation.Fraction == 0 || len(rest) == 0 {
				break
			}
			if rest[0].Addr == d.Endpoints[i].Addr {
				rest = rest[1:]
				if cached.plan.Weight(allocation.Group, i) > 0 {
					used[allocation.Key]++
				}
			}
		}
	}
	return used
}
