package ruleset_test

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// everyKind is a Service with one port that has a frontend of every kind in both families. Its number makes its
// addresses and its node port differ from other Services'.
func everyKind(name string, number int) model.Service {
	both := func(ipv4, ipv6 string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr(fmt.Sprint(ipv4, number)), netip.MustParseAddr(fmt.Sprint(ipv6, number))}
	}
	return model.Service{
		Name:            serviceName(name),
		ClusterIPs:      both("10.96.1.", "fd00:96::1:"),
		LoadBalancerIPs: both("203.0.113.", "2001:db8:1::"),
		ExternalIPs:     both("198.51.100.", "2001:db8:2::"),
		Ports:           []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: uint16(30000 + number)}},
		SourceRanges: []netip.Prefix{
			netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("192.0.2.200/32"), netip.MustParsePrefix("2001:db8:9::/48"),
		},
	}
}

// pod is an endpoint on a node, with an address in each family and port 8080: 10.244.9.7 and fd00:244::7 is number 7.
type pod struct {
	node   string
	number int
}

// podsOnNode1 and podsOnNode2 return pods with these numbers on a node.
func podsOnNode1(numbers ...int) []pod { return podsOn(node1.Name, numbers) }
func podsOnNode2(numbers ...int) []pod { return podsOn("node-2", numbers) }

func podsOn(node string, numbers []int) []pod {
	pods := make([]pod, len(numbers))
	for i, number := range numbers {
		pods[i] = pod{node, number}
	}
	return pods
}

func (p pod) addr(family model.Family) netip.Addr {
	if family == model.IPv4 {
		return netip.AddrFrom4([4]byte{10, 244, byte(9 + p.number>>8), byte(p.number)})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0, 0x02, 0x44, 14: byte(p.number >> 8), 15: byte(p.number)})
}

// decisionsFor returns the decisions about a Service on node-1, with a slice of ready pods in each family: IPv4 first.
func decisionsFor(service model.Service, pods ...pod) []selection.Decision {
	change := model.Change{
		Nodes:    map[string]*model.Node{node1.Name: &node1},
		Services: map[model.ObjectName]*model.Service{service.Name: &service},
		Slices:   map[model.ObjectName]*model.EndpointSlice{},
	}
	for _, family := range model.Families {
		slice := &model.EndpointSlice{Name: serviceName(service.Name.String() + family.String()), Service: service.Name, Family: family}
		for _, port := range service.Ports {
			slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: port.Protocol, Port: 8080})
		}
		for _, pod := range pods {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: pod.addr(family), Endpoint: model.Endpoint{Node: pod.node, Ready: true, Serving: true},
			})
		}
		change.Slices[slice.Name] = slice
	}
	cluster := model.NewCluster(node1.Name)
	cluster.Apply(change)
	return selection.NewPlanner(cluster).Decide(service.Name, model.Families)
}

// desiredService returns what a Service owns on node-1.
func desiredService(service model.Service, pods ...pod) ruleset.Service {
	owned := ruleset.Service{Name: service.Name}
	for _, decision := range decisionsFor(service, pods...) {
		owned.Ports = append(owned.Ports, ruleset.NewPort(decision))
	}
	return owned
}

// everyKindWith returns what the Service everyKind owns in IPv4 after a change.
func everyKindWith(pods []pod, changes ...func(*model.Service)) []ruleset.Service {
	service := everyKind("web", 1)
	service.ClusterIPs = service.ClusterIPs[:1]
	service.Ports = slices.Clone(service.Ports)
	for _, change := range changes {
		change(&service)
	}
	return services(desiredService(service, pods...))
}

func withoutNodePort(s *model.Service) { s.Ports[0].NodePort = 0 }
func externalLocal(s *model.Service)   { s.ExternalTrafficLocal = true }
func affinity(s *model.Service)        { s.AffinityTimeout = time.Hour }
