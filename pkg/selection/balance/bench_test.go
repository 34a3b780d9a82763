package balance_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// largeCluster returns a cluster with nodes in three zones and in racks, and with endpoints on random nodes.
func largeCluster(nodes, racks, endpoints int, keys ...policy.Key) *scenario {
	s := shape([]int{(nodes + 2) / 3, (nodes + 1) / 3, nodes / 3}, []int{0, 0, 0}, keys...)
	names, random := s.names(), rand.New(rand.NewPCG(9, 9))
	for i, name := range names {
		s.nodes[name][string(rack)] = fmt.Sprintf("k%d", i*racks/len(names))
	}
	for range endpoints {
		s.addEndpoint(names[random.IntN(len(names))])
	}
	return s
}

var sizes = []struct {
	name                    string
	nodes, racks, endpoints int
	keys                    []policy.Key
}{
	{"10-endpoints-100-nodes", 100, 5, 10, []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}},
	{"10-endpoints-5000-nodes", 5000, 5, 10, []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}},
	{"10-endpoints-5000-nodes-250-racks", 5000, 250, 10, []policy.Key{policy.Hostname, rack, policy.Zone, policy.AnyNode}},
	{"5000-endpoints-5000-nodes", 5000, 250, 5000, []policy.Key{policy.Hostname, rack, policy.Zone, policy.AnyNode}},
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range sizes {
		s := largeCluster(size.nodes, size.racks, size.endpoints, size.keys...)
		demand, endpointClasses := s.nodeClasses("a-000").ByLabels(), balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf)
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			var plan balance.Plan
			for b.Loop() {
				plan.Compute(demand, endpointClasses, s.limit)
			}
		})
	}
}

// BenchmarkMeasured converts measurements into a demand, as each plan with measured demand does: for three zones, and
// for one zone per node. The plan itself is measured for comparison, and one for open connections too, the most expensive
// kind: new and open connections crowd different zones, so it searches how much may stay near.
func BenchmarkMeasured(b *testing.B) {
	for _, size := range sizes[1:3] {
		s := largeCluster(size.nodes, size.racks, size.endpoints, size.keys...)
		zones := map[string]uint32{"a": 700_000, "b": 200_000, "c": 100_000}
		classes := s.nodeClasses("a-000")
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				classes.Measured(&model.Demand{Zones: zones})
			}
		})
		demand, _ := classes.Measured(&model.Demand{Zones: zones})
		endpointClasses := balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf)
		b.Run(size.name+"/plan", func(b *testing.B) {
			b.ReportAllocs()
			var plan balance.Plan
			for b.Loop() {
				plan.Compute(demand, endpointClasses, s.limit)
			}
		})
		both, _ := classes.Measured(&model.Demand{Zones: zones, Open: map[string]uint32{"a": 1000, "b": 9000, "c": 990_000}})
		b.Run(size.name+"/plan-of-both-kinds", func(b *testing.B) {
			b.ReportAllocs()
			var plan balance.Plan
			for b.Loop() {
				plan.Compute(both, endpointClasses, s.limit)
			}
		})
	}
}

func BenchmarkEndpointClasses(b *testing.B) {
	for _, size := range sizes {
		s := largeCluster(size.nodes, size.racks, size.endpoints, size.keys...)
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf)
			}
		})
	}
}

func BenchmarkShare(b *testing.B) {
	for _, size := range sizes {
		s := largeCluster(size.nodes, size.racks, size.endpoints, size.keys...)
		plan := s.plan("a-000")
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				share := plan.Share("a-000", s.nodes["a-000"])
				share.Slots(service, balance.Hashes(s.endpoints))
			}
		})
	}
}

func BenchmarkAddAndRemoveNode(b *testing.B) {
	for _, nodes := range []int{100, 5000} {
		s := largeCluster(nodes, 250, 0, policy.Hostname, rack, policy.Zone, policy.AnyNode)
		classes, labels := s.nodeClasses("b-000"), s.nodes["a-000"]
		b.Run(fmt.Sprintf("%d-nodes", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				classes.Set("a-new", labels)
				classes.Remove("a-new")
			}
		})
	}
}

func BenchmarkNodeClasses(b *testing.B) {
	s := largeCluster(5000, 250, 0, policy.Hostname, rack, policy.Zone, policy.AnyNode)
	b.ReportAllocs()
	for b.Loop() {
		s.nodeClasses("b-000")
	}
}
