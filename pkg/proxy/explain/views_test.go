package explain_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

// manyNodes is a cluster in which everything that a view keeps for other nodes is in use: bounds by several lists of keys, named
// clients, measured demand, and endpoints that are avoided.
func manyNodes(nodes int, random *rand.Rand) model.Change {
	all := true
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{},
		Nodes: map[string]*model.Node{}, Demands: map[model.ObjectName]*model.Demand{}, Avoid: map[model.Against]*model.Avoid{},
		AllNodes: &all, DemandState: new(model.DemandCounts),
	}
	nameOf := func(i int) string { return fmt.Sprintf("node-%04d", i) }
	for i := range nodes {
		change.Nodes[nameOf(i)] = &model.Node{
			Name: nameOf(i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})},
			Labels: map[string]string{string(policy.Zone): fmt.Sprintf("zone-%d", i%3), "example.com/rack": fmt.Sprintf("rack-%d", i/4)},
		}
	}
	change.Avoid[model.Against{Node: nameOf(1), Why: model.Evacuated}] = &model.Avoid{Why: model.Evacuated}
	zoned, racked := []policy.Key{policy.Zone, policy.AnyNode}, []policy.Key{"example.com/rack", policy.Zone, policy.AnyNode}
	for number, topology := range []policy.Topology{
		{}, {Keys: racked}, {Keys: zoned, MaxLoad: 120}, {Keys: racked, MaxLoad: 150, Clients: []string{"shop/s0"}},
		{Keys: []policy.Key{policy.Hostname, policy.AnyNode}, MaxLoad: 110}, {Keys: zoned, MaxLoad: 120, Measured: true},
	} {
		name := model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("s%d", number)}
		change.Services[name] = &model.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(number + 1)})}, Topology: topology,
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: uint16(30000 + number)}},
		}
		slice := &model.EndpointSlice{
			Name: name, Service: name, Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		}
		for e := range 6 {
			slice.Endpoints = append(slice.Endpoints,
				endpoint(fmt.Sprintf("10.244.%d.%d", number, e+1), nameOf(random.IntN(nodes)), random.IntN(5) > 0))
		}
		change.Slices[name] = slice
		if topology.Measured {
			change.Demands[name] = &model.Demand{Zones: map[string]uint32{"zone-0": 700, "zone-1": 200, "zone-2": 100}, Since: time.Unix(0, 0)}
		}
	}
	return change
}

// TestAViewIsWhatItsNodeSees: what is kept for other nodes changes no explanation.
func TestAViewIsWhatItsNodeSees(t *testing.T) {
	for seed := range uint64(8) {
		change := manyNodes(30, rand.New(rand.NewPCG(seed, 0)))
		views := explain.NewViews(change, model.NodePortAddresses{Primary: true}, explain.Query{})
		for name, node := range change.Nodes {
			alone := explain.Seen(change, name, model.NodePortAddresses{Primary: true})
			want := explain.Clients{}.Ports(alone, explain.Query{})
			if diff := cmp.Diff(want, views.Ports(explain.Clients{}, node)); diff != "" {
				t.Fatalf("seed %d, %s: (-alone +view):\n%s", seed, name, diff)
			}
		}
	}
}

// TestViewsOfTwiceAsManyNodesTakeTwiceTheWork. If each node looked at all nodes, it would be four times.
func TestViewsOfTwiceAsManyNodesTakeTwiceTheWork(t *testing.T) {
	allocations := func(nodes int) float64 {
		change := manyNodes(nodes, rand.New(rand.NewPCG(1, 1)))
		return testing.AllocsPerRun(1, func() {
			views := explain.NewViews(change, model.NodePortAddresses{}, explain.Query{})
			for _, node := range change.Nodes {
				if ports := views.Ports(explain.Clients{}, node); len(ports) != 6 {
					t.Fatalf("%d ports, want 6", len(ports))
				}
			}
		})
	}
	if few, many := allocations(150), allocations(300); many > 2.3*few {
		t.Errorf("%.0f allocations for 150 nodes, %.0f for 300", few, many)
	}
}

// TestWhatIsToBeExplainedIsCountedBeforehand, by what the query asks for.
func TestWhatIsToBeExplainedIsCountedBeforehand(t *testing.T) {
	change := manyNodes(3, rand.New(rand.NewPCG(1, 1)))
	for query, want := range map[explain.Query]int{
		{}: 6,
		{Service: model.ObjectName{Namespace: "shop"}}:                          6,
		{Service: model.ObjectName{Namespace: "shop", Name: "s2"}}:              1,
		{Service: model.ObjectName{Namespace: "shop", Name: "s2"}, Port: "443"}: 0,
		{Service: model.ObjectName{Namespace: "elsewhere"}}:                     0,
	} {
		if got := explain.NewViews(change, model.NodePortAddresses{}, query).PortsOnEach(); got != want {
			t.Errorf("%+v: %d ports, want %d", query, got, want)
		}
	}
}
