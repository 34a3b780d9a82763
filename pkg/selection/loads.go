package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Loads are the expected loads of endpoints, from all nodes together.
type Loads struct {
	// Endpoints are the loads of a decision's endpoints, in their order.
	Endpoints []balance.Load
	// Source is the source of the demand.
	Source balance.Source
	// Clients is the number of ready endpoints of the named client Services on Nodes, or 0 if none is named.
	Clients int
	// Measured has the details of a measured demand. It is nil if demand is assumed.
	Measured *MeasuredLoads
}

// MeasuredLoads compares measured demand with the demand that would be assumed without it.
type MeasuredLoads struct {
	*model.Demand
	// Zones is the measured demand of the zones that have nodes, and AssumedZones the assumed demand, both as fractions of
	// their sum.
	Zones, AssumedZones map[string]float64
	// AssumedLoads are the endpoints' loads under the measured demand if the plan were computed with assumed demand, in
	// per mille of the mean and in the order of the endpoints.
	AssumedLoads []uint64
}

// Loads returns the expected loads of the endpoints of a decision, and whether there is a plan.
func (p *Planner) Loads(decision Decision) (loads Loads, planned bool) {
	record := decision.Selection.Cluster.record
	if record == nil {
		return Loads{}, false
	}
	demand, known := p.demandOf(decision.Service)
	if !known {
		return Loads{}, false
	}
	cached := decision.Viewpoint.plan
	if cached == nil {
		return p.loadsOf(decision.Service, record, demand), true
	}
	if cached.loads == nil {
		loads := p.loadsOf(decision.Service, record, demand)
		cached.loads = &loads
	}
	return *cached.loads, true
}

func (p *Planner) loadsOf(service *model.Service, record *planRecord, demand balance.Demand) (loads Loads) {
	limit := int(service.Topology.MaxLoad)
	loads.Endpoints, loads.Source = balance.NewPlan(demand, record.endpointClasses, limit).Loads(), demand.Source()
	for node, count := range p.readyEndpoints(service.Clients()) {
		if labels, _ := p.cluster.NodeLabels(node); policy.IsLinux(labels) {
			loads.Clients += int(count)
		}
	}
	if loads.Source == balance.Measurement {
		assumed := p.assumedOf(service, WithZone(service.Topology.Keys))
		loads.Measured = &MeasuredLoads{
			Demand: p.cluster.MeasuredDemand(service), AssumedZones: fractionsOf(assumed.Zones()),
			AssumedLoads: balance.NewPlan(assumed, record.endpointClasses, limit).LoadsUnder(demand),
		}
		loads.Measured.setZoneFractions(demand)
	}
	return loads
}

// setZoneFractions computes the zones' fractions from the measurement itself, because the demand of a plan is rounded.
func (m *MeasuredLoads) setZoneFractions(demand balance.Demand) {
	zones := map[string]uint64{}
	for zone := range demand.Zones() {
		zones[zone] = uint64(m.Demand.Zones[zone])
	}
	m.Zones = fractionsOf(zones)
}

// AssumedBusiest returns the index of the endpoint with the highest load if the plan were computed with assumed demand.
func (m *MeasuredLoads) AssumedBusiest() int {
	return slices.Index(m.AssumedLoads, slices.Max(m.AssumedLoads))
}

// fractionsOf returns the zones' fractions of their total demand. They are 0 if the total is 0.
func fractionsOf(zones map[string]uint64) map[string]float64 {
	total, fractions := uint64(0), make(map[string]float64, len(zones))
	for _, demand := range zones {
		total += demand
	}
	for zone, demand := range zones {
		fractions[zone] = float64(demand) / float64(max(total, 1))
	}
	return fractions
}
