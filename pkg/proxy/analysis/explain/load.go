package explain

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// loadOf explains how a load bound distributes all nodes' connections; nil means that there is none.
func loadOf(cluster *model.Cluster, planner *selection.Planner, decision selection.Decision) *Load {
	loads, planned := planner.Loads(decision)
	if !planned {
		return nil
	}
	topology := decision.Service.Topology
	load := Load{
		MaxLoad: float64(topology.MaxLoad) / 100, Clients: append([]string{}, topology.Clients...), Endpoints: map[string]EndpointLoad{},
		DemandSource: loads.Source.String(),
	}
	for i, expected := range loads.Endpoints {
		if expected != (balance.Load{}) {
			load.Endpoints[EndpointName(decision.Endpoints[i].Addr)] = EndpointLoad{
				Bounded: float64(expected.Bounded) / 1000, Unbounded: float64(expected.Unbounded) / 1000,
			}
		}
	}
	if len(load.Endpoints) > 0 {
		load.Message = overloadWithoutBound(decision, loads.Endpoints)
		load.setDemand(cluster, decision, loads)
	}
	return &load
}

// overloadWithoutBound describes how many endpoints would be overloaded without the load bound, and by how much.
func overloadWithoutBound(decision selection.Decision, loads []balance.Load) string {
	overloaded, maxIndex, maxBounded := 0, 0, uint64(0)
	for i, load := range loads {
		if load.Unbounded > 10*decision.Service.Topology.MaxLoad {
			overloaded++
		}
		if load.Unbounded > loads[maxIndex].Unbounded {
			maxIndex = i
		}
		maxBounded = max(maxBounded, load.Bounded)
	}
	busiest, unbounded := EndpointName(decision.Endpoints[maxIndex].Addr), times(loads[maxIndex].Unbounded)
	suffix := fmt.Sprintf("; with the bound, the highest expected load is %s times.", times(maxBounded))
	switch overloaded {
	case 0:
		return fmt.Sprintf("No endpoint needs the load bound: without it, the expected load of the busiest, %s, would be %s times the mean.",
			busiest, unbounded)
	case 1:
		return fmt.Sprintf("Without the load bound, the expected load of %s would be %s times the mean", busiest, unbounded) + suffix
	}
	return fmt.Sprintf("Without the load bound, %d endpoints would exceed it. The busiest is %s: its expected load would be %s times the mean",
		overloaded, busiest, unbounded) + suffix
}

// times formats a multiple that is given per mille.
func times(perMille uint64) string { return fmt.Sprintf("%.2f", float64(perMille)/1000) }
