package selection

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// manyEndpoints returns ten endpoints of one Service port, spread over three zones.
func manyEndpoints(hints bool) []model.PortEndpoint {
	endpoints := make([]model.PortEndpoint, 10)
	for i := range endpoints {
		endpoints[i] = model.PortEndpoint{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080),
			Endpoint: model.Endpoint{
				Node: fmt.Sprintf("node-%d", 1+i%4), Zone: string(rune('a' + i%3)), Ready: true, Serving: true,
			},
		}
		if hints {
			endpoints[i].HintZones = []string{endpoints[i].Zone}
		}
	}
	return endpoints
}

var benchmarks = []struct {
	name   string
	keys   string
	hints  bool
	chosen int
	allocs float64
}{
	{"all", "", false, 10, 0},
	{"hints", "", true, 4, 1},
	{"hostname-zone-any", "hostname zone *", false, 3, 1},
	{"rack-by-node-label", "rack *", false, 5, 1},
	{"any", "*", false, 10, 0},
}

func BenchmarkSelect(b *testing.B) {
	for _, benchmark := range benchmarks {
		service, endpoints, viewpoint := withKeys(model.Service{}, benchmark.keys), manyEndpoints(benchmark.hints), viewFrom(testNodes)
		b.Run(benchmark.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := Select(&service, false, endpoints, viewpoint); len(got.Cluster.Endpoints) != benchmark.chosen {
					b.Fatalf("%d endpoints were chosen, want %d", len(got.Cluster.Endpoints), benchmark.chosen)
				}
			}
		})
	}
}

func TestSelectAllocatesAtMostOnceForAChoice(t *testing.T) {
	for _, benchmark := range benchmarks {
		service, endpoints, viewpoint := withKeys(model.Service{}, benchmark.keys), manyEndpoints(benchmark.hints), viewFrom(testNodes)
		got := testing.AllocsPerRun(100, func() { Select(&service, false, endpoints, viewpoint) })
		if got != benchmark.allocs {
			t.Errorf("%s: %v allocations, want %v", benchmark.name, got, benchmark.allocs)
		}
	}
}

func TestAllEndpointsAreTheGivenSlice(t *testing.T) {
	endpoints := manyEndpoints(false)[:9]
	got := Select(&model.Service{}, false, endpoints, viewFrom(testNodes)).Cluster.Endpoints
	if &got[0] != &endpoints[0] || cap(got) != len(endpoints) {
		t.Error("the choice of all endpoints is a copy, or its capacity exceeds its length")
	}
}

// BenchmarkNeedsReplan calls NeedsReplan for 1,000 Services of ten endpoints each, on 5,000 nodes in ten zones, after a
// node was added. It reports the cost of one Service.
func BenchmarkNeedsReplan(b *testing.B) {
	const zones, services = 10, 1000
	node := func(i int) *model.Node {
		name := fmt.Sprintf("worker-%d", i)
		return &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): fmt.Sprintf("zone-%d", i%zones)}}
	}
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{},
		Nodes: map[string]*model.Node{}, AllNodes: new(true)}
	for i := range 5000 {
		change.Nodes[node(i).Name] = node(i)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for i := range services {
		name := model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		change.Services[name] = &model.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports:    []model.ServicePort{{Protocol: model.TCP, Port: 80}},
			Topology: policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120},
		}
		slice := &model.EndpointSlice{Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
		for e := range 10 {
			host := node(random.IntN(5000))
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr:     netip.AddrFrom4([4]byte{10, byte(e), byte(i >> 8), byte(i)}),
				Endpoint: model.Endpoint{Node: host.Name, Zone: host.Labels[string(policy.Zone)], Ready: true, Serving: true},
			})
		}
		change.Slices[name] = slice
	}
	cluster := model.NewCluster("worker-0")
	cluster.Apply(change)
	planner := NewPlanner(cluster)
	names := cluster.ServiceNames()
	for _, name := range names {
		planner.OnApplied(name, planner.Derive(planner.Decide(name, []model.Family{model.IPv4})))
	}
	nodeAdded := model.Change{Nodes: map[string]*model.Node{"new": {Name: "new", Labels: node(3).Labels}}}
	cluster.Apply(nodeAdded)
	planner.ApplyChange(nodeAdded)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		planner.NeedsReplan(names[i%services])
	}
}
