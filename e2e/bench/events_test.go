package bench_test

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// event is a small change of a cluster.
type event struct {
	name string
	// number returns the number of the Service that changes in this round; change returns the change.
	number func(s size, round int) int
	change func(s size, number, round int) model.Change
	// needs is the type of Service that the event requires.
	needs serviceType
	// samples is the number of measurements in each iteration of the benchmark.
	samples int
}

var events = []event{
	{name: "one endpoint replaced", number: size.scattered, change: size.replace, needs: onlyClusterIP, samples: 5000},
	{name: "one endpoint removed or added", number: size.pairwise, change: size.resize, needs: onlyClusterIP, samples: 5000},
	{name: "one source range replaced", number: size.loadBalancerPairwise, change: size.replaceRange, needs: loadBalancer, samples: 200},
}

// scattered picks another Service each round, distributed over the whole cluster, so that all types of Services are
// picked.
func (s size) scattered(round int) int { return round * 7919 % s.services } // a prime

// pairwise picks each Service twice, one after the other.
func (s size) pairwise(round int) int { return round / 2 % s.services }

func (s size) loadBalancerPairwise(round int) int {
	balancers := (s.services + mixSize - 1 - nodePortsInMix) / mixSize
	return round%balancers*mixSize + nodePortsInMix
}

// replace returns the change that replaces one endpoint of a Service by another pod.
func (s size) replace(number, round int) model.Change {
	slice := s.slice(number, s.endpoints)
	slice.Endpoints[round%s.endpoints].Addr = netip.AddrFrom4([4]byte{11, byte(round >> 16), byte(round >> 8), byte(round)})
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
}

// resize returns the change that removes the last endpoint of a Service, or adds it again.
func (s size) resize(number, round int) model.Change {
	slice := s.slice(number, s.endpoints-1+round%2)
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
}

// replaceRange returns the change of a load balancer's source ranges.
func (s size) replaceRange(number, round int) model.Change {
	service := s.service(number)
	service.SourceRanges = slices.Clone(service.SourceRanges)
	service.SourceRanges[sourceRanges-1] = netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(round >> 8), byte(round), 0}), 24)
	return model.Change{Services: map[model.ObjectName]*model.Service{service.Name: service}}
}
