package bench_test

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// size is the size of a cluster. Its Services are all of type ClusterIP, or a mix of types.
type size struct {
	services, endpoints int
	mix                 bool
}

func (s size) String() string {
	if s.mix {
		return fmt.Sprintf("mix %dx%d", s.services, s.endpoints)
	}
	return fmt.Sprintf("%dx%d", s.services, s.endpoints)
}

// sizes are those of published measurements: 10,000 Services in many scale tests, 44,125 in
// kubernetes/kubernetes#139513.
var sizes = []size{{10_000, 10, false}, {44_125, 5, false}, {10_000, 10, true}, {44_125, 5, true}}

// million adds a cluster of a million endpoints. It takes twenty minutes and 3 GiB.
var million = flag.Bool("million", false, "also measure 20,000 Services of 50 endpoints")

// requestedSizes returns the sizes to measure.
func requestedSizes() []size {
	if *million {
		return append(slices.Clone(sizes), size{20_000, 50, false})
	}
	return sizes
}

func serviceName(number int) model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: fmt.Sprintf("service-%d", number)}
}

// cluster returns all Services and EndpointSlices of a cluster.
func (s size) cluster() model.Change {
	change := model.Change{
		Services: make(map[model.ObjectName]*model.Service, s.services),
		Slices:   make(map[model.ObjectName]*model.EndpointSlice, s.services),
	}
	for number := range s.services {
		name := serviceName(number)
		change.Services[name] = s.service(number)
		change.Slices[name] = s.slice(number, s.endpoints)
	}
	return change
}

func (s size) service(number int) *model.Service {
	service := &model.Service{
		Name:       serviceName(number),
		ClusterIPs: []netip.Addr{clusterIP(number)},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: servicePort}},
	}
	s.expose(service, number)
	return service
}

// servicePort is the port that clients dial, podPort the one on which pods serve.
const (
	servicePort = 80
	podPort     = 8080
)

func clusterIP(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})
}

// slice returns the EndpointSlice of a Service, with the given number of ready endpoints. They are on other nodes,
// except for the first endpoint of a Service with externalTrafficPolicy: Local.
func (s size) slice(number, endpoints int) *model.EndpointSlice {
	name := serviceName(number)
	slice := &model.EndpointSlice{
		Name:    name,
		Service: name,
		Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: podPort}},
	}
	for endpoint := range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(128 + endpoint), byte(number >> 8), byte(number)}),
			Endpoint: model.Endpoint{
				Node: fmt.Sprintf("node-%d", endpoint), Zone: fmt.Sprintf("zone-%d", endpoint%3), Ready: true, Serving: true,
			},
		})
	}
	if s.typeOf(number) == loadBalancer && s.isLocal(number) && endpoints > 0 {
		slice.Endpoints[0].Node = ownNode
	}
	return slice
}
