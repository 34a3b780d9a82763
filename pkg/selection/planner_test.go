package selection

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestCachedIndexesAreLimited: each Service may have different lists of topology keys and clients, and each list needs
// an index of all nodes. The number of cached entries is bounded, and decisions do not depend on what is cached.
func TestCachedIndexesAreLimited(t *testing.T) {
	const count = maxCachedEntries/1000 + 10
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{},
		Nodes: map[string]*model.Node{}, AllNodes: new(true)}
	for i := range 1000 {
		name, zone := fmt.Sprintf("worker-%d", i), fmt.Sprintf("zone-%d", i%2)
		change.Nodes[name] = &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): zone}}
	}
	slice := func(service model.ObjectName, nodes ...int) {
		slice := &model.EndpointSlice{Name: service, Service: service, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
		for i, node := range nodes {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr:     netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}),
				Endpoint: model.Endpoint{Node: fmt.Sprintf("worker-%d", node), Zone: fmt.Sprintf("zone-%d", node%2), Ready: true},
			})
		}
		change.Slices[service] = slice
	}
	slice(model.ObjectName{Namespace: "shop", Name: "client"}, 0, 0, 0, 1)
	for i := range 2 * count {
		name := model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		topology := policy.Topology{Keys: []policy.Key{policy.Zone, policy.Key(fmt.Sprintf("example.com/%d", i)), policy.AnyNode}, MaxLoad: 120}
		if i >= count {
			topology.Keys[1], topology.Clients = "example.com/one", []string{"shop/client", fmt.Sprintf("shop/none-%d", i)}
		}
		change.Services[name] = &model.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, Topology: topology,
		}
		slice(name, 0, 1, 3, 5)
	}
	cluster := model.NewCluster("worker-0")
	cluster.Apply(change)
	planner := NewPlanner(cluster)
	names := cluster.ServiceNames()
	for _, name := range names {
		weight := planner.PlanWeight(name)
		decisions := planner.Decide(name, []model.Family{model.IPv4})
		uncached := NewPlanner(cluster).Decide(name, []model.Family{model.IPv4})
		got, want := decisions[0].Selection.Cluster, uncached[0].Selection.Cluster
		if len(got.Slots) == 0 || !slices.Equal(got.Slots, want.Slots) {
			t.Fatalf("%s has slots %d, want %d as from a new planner", name, got.Slots, want.Slots)
		}
		if planner.cachedEntries > maxCachedEntries {
			t.Fatalf("%d entries are cached after %s, want at most %d", planner.cachedEntries, name, maxCachedEntries)
		}
		if again := planner.PlanWeight(name); weight <= again {
			t.Fatalf("%s has weight %d before its index is cached, and %d afterwards, want less", name, weight, again)
		}
		planner.OnApplied(name, planner.Derive(decisions))
	}
	for _, name := range names {
		if differs, _ := planner.NeedsReplan(name); differs {
			t.Fatalf("NeedsReplan is true for %s although nothing changed", name)
		}
	}
}
