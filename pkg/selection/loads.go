package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Loads are what endpoints expect from all nodes together.
type Loads struct {
	// Endpoints has the endpoints of a decision, in their order.
	Endpoints []balance.Load
	// Source is where the demand is from.
	Source balance.Source
	// Clients is how many ready endpoints of the named client Services are on Nodes; 0 if none is named.
	Clients int
	// Measured has the details of a measured demand; nil if demand is assumed.
	Measured *MeasuredLoads
}

// MeasuredLoads compare measured demand with what would be assumed without it.
type MeasuredLoads struct {
	*model.Demand
	// Zones are the measured demand of the zones that have nodes, and AssumedZones the assumed one, each as a part of its
	// sum.
	Zones, AssumedZones map[string]float64
	// AssumedLoads is what each endpoint would get of the measured demand, per mille of the mean, if the plan were made with
	// assumed demand: in the order of the endpoints.
	AssumedLoads []uint64
}

// Loads returns what the endpoints of a decision expect, and whether anything was planned.
func (p *Planner) Loads(decision Decision) (loads Loads, planned bool) {
	part := decision.Selection.Cluster.planned
	if part == nil {
		return Loads{}, false
	}
	demand, known := p.demandOf(decision.Service)
	if !known {
		return Loads{}, false
	}
	kept := decision.Viewpoint.plan
	if kept == nil {
		return p.loadsOf(decision.Service, part, demand), true
	}
	if kept.loads == nil {
		loads := p.loadsOf(decision.Service, part, demand)
		kept.loads = &loads
	}
	return *kept.loads, true
}

func (p *Planner) loadsOf(service *model.Service, part *planInput, demand balance.Demand) (loads Loads) {
	limit := int(service.Topology.MaxLoad)
	loads.Endpoints, loads.Source = balance.NewPlan(demand, part.endpointClasses, limit).Loads(), demand.Source()
	for node, count := range p.readyEndpoints(service.Clients()) {
		if labels, _ := p.cluster.NodeLabels(node); policy.IsLinux(labels) {
			loads.Clients += int(count)
		}
	}
	if loads.Source == balance.Measurement {
		assumed := p.assumedOf(service, WithZone(service.Topology.Keys))
		loads.Measured = &MeasuredLoads{
			Demand: p.cluster.MeasuredDemand(service), AssumedZones: partsOf(assumed.Zones()),
			AssumedLoads: balance.NewPlan(assumed, part.endpointClasses, limit).LoadsUnder(demand),
		}
		loads.Measured.setParts(demand)
	}
	return loads
}

// setParts takes the parts of the zones that there are from what was measured, because a plan rounds it.
func (m *MeasuredLoads) setParts(demand balance.Demand) {
	zones := map[string]uint64{}
	for zone := range demand.Zones() {
		zones[zone] = uint64(m.Demand.Zones[zone])
	}
	m.Zones = partsOf(zones)
}

// AssumedBusiest returns the index of the endpoint that would get most if the plan were made with assumed demand.
func (m *MeasuredLoads) AssumedBusiest() int {
	return slices.Index(m.AssumedLoads, slices.Max(m.AssumedLoads))
}

// partsOf returns the zones' parts of their total demand; all 0 if that is 0.
func partsOf(zones map[string]uint64) map[string]float64 {
	all, parts := uint64(0), make(map[string]float64, len(zones))
	for _, asks := range zones {
		all += asks
	}
	for zone, asks := range zones {
		parts[zone] = float64(asks) / float64(max(all, 1))
	}
	return parts
}
