package syncer_test

import (
	"fmt"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// manyEndpoints are more endpoints than the preallocated classes have, so they add a class, which a cleanup deletes
// later.
const manyEndpoints = 33

// manyServices returns a cluster of Services with the given number of ready endpoints each.
func manyServices(services, endpoints int) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for number := range services {
		name := model.ObjectName{Namespace: "default", Name: fmt.Sprintf("service-%d", number)}
		change.Services[name] = &model.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})},
			Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}
		change.Slices[name] = sliceOf(name, endpoints)
	}
	return change
}

// sliceOf returns the slice of a Service of manyServices, with its endpoints 0 to count-1.
func sliceOf(name model.ObjectName, count int) *model.EndpointSlice {
	slice := &model.EndpointSlice{Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	var number int
	if _, err := fmt.Sscanf(name.Name, "service-%d", &number); err != nil {
		panic(err)
	}
	for endpoint := range count {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr:     netip.AddrFrom4([4]byte{10, byte(128 + endpoint), byte(number >> 8), byte(number)}),
			Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true},
		})
	}
	return slice
}
