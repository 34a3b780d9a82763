package syncer_test

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// dnsService returns a Service with UDP port 53.
func dnsService(name, clusterIP string, edits ...func(*model.Service)) *model.Service {
	service := &model.Service{
		Name:       model.ObjectName{Namespace: "default", Name: name},
		ClusterIPs: addrs(clusterIP),
		Ports:      []model.ServicePort{{Name: "dns", Protocol: model.UDP, Port: 53}},
	}
	for _, edit := range edits {
		edit(service)
	}
	return service
}

// dnsServiceSlice returns the slice of a dnsService: ready endpoints 10.244.0.N, on this node if N is below 10.
func dnsServiceSlice(service string, numbers ...int) *model.EndpointSlice {
	name := model.ObjectName{Namespace: "default", Name: service}
	slice := &model.EndpointSlice{Name: name, Service: name}
	for _, protocol := range model.Protocols {
		slice.Ports = append(slice.Ports, model.SlicePort{Name: "dns", Protocol: protocol, Port: 53})
	}
	for _, number := range numbers {
		endpoint := model.SliceEndpoint{Addr: podAddr(number), Endpoint: model.Endpoint{Node: self, Ready: true, Serving: true}}
		if number >= 10 {
			endpoint.Node = "elsewhere"
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

func sliceChange(slice *model.EndpointSlice) model.Change {
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
}

// deleteServices returns a change that deletes Services and leaves their slices.
func deleteServices(names ...string) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{}}
	for _, name := range names {
		change.Services[model.ObjectName{Namespace: "default", Name: name}] = nil
	}
	return change
}

// newProxy returns a new proxy of both families, with handlers.
func newProxy(kernel syncer.Kernel, handlers ...selection.Handler) *syncer.Proxy {
	return syncer.New(self, bothFamilies, kernel, handlers...)
}

// oneService returns the change that sets one Service and one slice of the same name.
func oneService(service *model.Service, slice *model.EndpointSlice) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{service.Name: service}}
	if slice != nil {
		change.Slices = map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}
	}
	return change
}
