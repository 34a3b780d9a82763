package selection

import (
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

// MeasuredLoads is a measured demand.
type MeasuredLoads struct {
	*model.Demand
	// Zones are the zones that have nodes, each with its part of their sum.
	Zones map[string]float64
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

func (p *Planner) loadsOf(service *model.Service, part *planned, demand balance.Demand) (loads Loads) {
	loads.Endpoints = balance.NewPlan(demand, part.places, int(service.Topology.MaxLoad)).Loads()
	loads.Source = demand.Source()
	for node, count := range p.readyEndpoints(service.Clients()) {
		if labels, _ := p.cluster.NodeLabels(node); policy.IsLinux(labels) {
			loads.Clients += int(count)
		}
	}
	if loads.Source == balance.Measurement {
		measured, all := p.cluster.MeasuredDemand(service), uint64(0)
		zones := demand.Zones() // their numbers are rounded for the plan; what was measured is not
		for zone := range zones {
			all += uint64(measured.Zones[zone])
		}
		loads.Measured = &MeasuredLoads{Demand: measured, Zones: map[string]float64{}}
		for zone := range zones {
			loads.Measured.Zones[zone] = float64(measured.Zones[zone]) / float64(all)
		}
	}
	return loads
}
