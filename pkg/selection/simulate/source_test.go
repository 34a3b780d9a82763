package simulate

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// zonedNodes returns two nodes in zone a, one in zone b and one without a zone.
func zonedNodes() []model.Node {
	zone := func(name string) map[string]string { return map[string]string{string(policy.Zone): name} }
	return []model.Node{{Name: "a1", Labels: zone("a")}, {Name: "a2", Labels: zone("a")}, {Name: "b1", Labels: zone("b")}, {Name: "x"}}
}

// TestSourcesOfDemand checks the source of the nodes' demand, and of the demand that a bound is planned with.
func TestSourcesOfDemand(t *testing.T) {
	given := func(*model.Node) float64 { return 1 }
	clients, nodeDemand := map[string]uint32{"a1": 2}, map[string]float64{"b1": 1}
	measured := &model.Demand{Zones: map[string]uint32{"a": 1_000_000}}
	unknownZone := &model.Demand{Zones: map[string]uint32{"c": 1_000_000}}
	for name, c := range map[string]struct {
		demand          Demand
		wants           bool
		question        Query
		source, planned Source
	}{
		"no clients, no measurement":      {nil, false, Query{}, Labels, Labels},
		"measured, no measurement":        {nil, true, Query{}, Labels, Labels},
		"clients":                         {nil, false, Query{Clients: clients}, Clients, Clients},
		"a measurement":                   {nil, false, Query{Measured: measured}, Measured, Labels},
		"measured, a measurement":         {nil, true, Query{Measured: measured}, Measured, Measured},
		"measured in zones without nodes": {nil, true, Query{Measured: unknownZone}, Labels, Labels},
		"measured, clients":               {nil, true, Query{Measured: measured, Clients: clients}, Measured, Measured},
		"a file":                          {given, false, Query{}, Given, Labels},
		"a file and clients":              {given, false, Query{Clients: clients}, Given, Clients},
		"a file and a measurement":        {given, true, Query{Measured: measured}, Given, Measured},
		"a file for the Service":          {given, false, Query{NodeDemand: nodeDemand}, Given, Labels},
	} {
		q := c.question
		q.Topology = policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120, Measured: c.wants}
		if q.Clients != nil {
			q.Topology.Clients = []string{"shop/api"}
		}
		got := New(zonedNodes(), c.demand).Distribute(q)
		if got.Source != c.source || got.PlannedWith != c.planned {
			t.Errorf("%s: source %q, planned with %q; want %q and %q", name, got.Source, got.PlannedWith, c.source, c.planned)
		}
		q.Topology.MaxLoad = 0
		if got := New(zonedNodes(), c.demand).Distribute(q); got.Source != c.source || got.PlannedWith != "" {
			t.Errorf("%s: without a bound: source %q, planned with %q", name, got.Source, got.PlannedWith)
		}
	}
}

// TestAZoneHasTheMeasuredDemand: the nodes of each zone together have exactly the zone's measured demand, although
// plans round each node's demand.
func TestAZoneHasTheMeasuredDemand(t *testing.T) {
	sim := New(zonedNodes(), nil)
	q := Query{Measured: &model.Demand{
		Zones: map[string]uint32{"a": 333_333, "b": 1, "": 600_000, "gone": 66_666},
	}}
	demands := sim.serviceDemandOf(&q)
	byNode, _ := sim.demandByNode(&q, &demands)
	got := map[string]float64{}
	for node, demand := range maps.All(byNode) {
		got[sim.nodes[node].Labels[string(policy.Zone)]] += demand
	}
	if diff := cmp.Diff(map[string]float64{"a": 333_333, "b": 1, "": 600_000}, got); diff != "" {
		t.Errorf("demand of zones (-want +got):\n%s", diff)
	}
}
