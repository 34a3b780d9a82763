package bench_test

import (
	"fmt"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// size is the size of a cluster.
type size struct{ services, endpoints int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.services, s.endpoints) }

// sizes are those of published measurements: 10,000 Services in many scale tests, 44,125 in kubernetes/kubernetes#139513.
var sizes = []size{{10_000, 10}, {44_125, 5}}

func serviceName(number int) model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: fmt.Sprintf("service-%d", number)}
}

// cluster returns all objects of a cluster.
func (s size) cluster() model.Change {
	change := model.Change{
		Services: make(map[model.ObjectName]*model.Service, s.services),
		Slices:   make(map[model.ObjectName]*model.EndpointSlice, s.services),
	}
	for number := range s.services {
		name := serviceName(number)
		change.Services[name] = &model.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}
		change.Slices[name] = slice(number, s.endpoints)
	}
	return change
}

// slice returns the slice of a Service, with so many ready endpoints on other nodes.
func slice(number, endpoints int) *model.EndpointSlice {
	name := serviceName(number)
	made := &model.EndpointSlice{
		Name:    name,
		Service: name,
		Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
	for endpoint := range endpoints {
		made.Endpoints = append(made.Endpoints, model.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(128 + endpoint), byte(number >> 8), byte(number)}),
			Endpoint: model.Endpoint{
				Node: fmt.Sprintf("node-%d", endpoint), Zone: fmt.Sprintf("zone-%d", endpoint%3), Ready: true, Serving: true,
			},
		})
	}
	return made
}

// change returns the event that another pod takes the place of one endpoint of a Service.
func (s size) change(round int) model.Change {
	number := round * 7919 % s.services // a prime: each round another Service
	made := slice(number, s.endpoints)
	made.Endpoints[round%s.endpoints].Addr = netip.AddrFrom4([4]byte{11, byte(round >> 16), byte(round >> 8), byte(round)})
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{made.Name: made}}
}

// resize returns the event that a Service loses its last endpoint, or gets it back.
func (s size) resize(round int) model.Change {
	made := slice(round/2%s.services, s.endpoints-1+round%2)
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{made.Name: made}}
}
