//go:build linux

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// shape is everything about a Service that determines its elements and chains.
type shape struct {
	name                         string
	cluster, local               int // endpoints, of all nodes and of this one
	internalLocal, externalLocal bool
	affinity                     time.Duration
	prefixes                     []netip.Prefix // clients that may connect to the load balancer's address
}

// everyShape returns the policies, each with and without endpoints and session affinity: all kinds of lb and sticky
// chains.
func everyShape(family model.Family) []shape {
	var shapes []shape
	for _, affinity := range []time.Duration{0, 3 * time.Hour} {
		for _, cluster := range []int{0, 2} {
			for _, local := range []int{0, 1} {
				for policies := range 4 {
					shapes = append(shapes, shape{
						name:          fmt.Sprintf("svc-%d-local-%d-policies-%d-sticky-%.0f", cluster, local, policies, affinity.Hours()),
						cluster:       cluster,
						local:         local,
						internalLocal: policies&1 > 0,
						externalLocal: policies&2 > 0,
						affinity:      affinity,
					})
				}
			}
		}
	}
	addrs := addressesOf(family)
	shapes[0].prefixes = []netip.Prefix{netip.PrefixFrom(addrs.client, addrs.client.BitLen())}
	shapes[1].prefixes = []netip.Prefix{addrs.allowedRange, addrs.cluster, addrs.loopback}
	shapes[2].prefixes = []netip.Prefix{netip.PrefixFrom(model.AnyAddr(family), 0)}
	return append(shapes, shape{name: "large", cluster: 70, local: 11, externalLocal: true})
}

// splitShapes returns the shapes whose chains distinguish internal from external clients, which depends on the layout.
// The chains of all others are the same in every layout.
func splitShapes(family model.Family) []shape {
	return slices.DeleteFunc(everyShape(family), func(s shape) bool { return !s.internalLocal || !s.externalLocal })
}

// servicesOf returns a Service of each shape, all of them with a ClusterIP, a load balancer's address, an external IP
// and a node port.
func servicesOf(family model.Family, shapes []shape) []ruleset.Service {
	var services []ruleset.Service
	addrs := addressesOf(family)
	clusterIP, balancer, externalIP := addrs.service, addrs.balancer, addrs.client
	for i, shape := range shapes {
		name := model.ObjectName{Namespace: "default", Name: shape.name}
		id := model.PortID{Service: name, Port: "http", Protocol: model.Protocols[i%len(model.Protocols)], Family: family}
		port := ruleset.Port{ID: id, ClusterIP: clusterIP, Affinity: shape.affinity, Sources: shape.prefixes}
		port.Cluster, port.Local = endpointsOf(family, shape.cluster), endpointsOf(family, shape.local)
		port.OnNode = port.Local
		add := func(addr netip.Addr, number uint16, external, restricted bool) {
			frontend := ruleset.Frontend{External: external, Local: shape.internalLocal, Restricted: restricted}
			frontend.Frontend = model.Frontend{Addr: addr, Protocol: id.Protocol, Port: number}
			if external {
				frontend.Local = shape.externalLocal
			}
			frontend.Class = shape.classOf(frontend)
			port.Frontends = append(port.Frontends, frontend)
		}
		add(clusterIP, 80, false, false)
		add(balancer, 80, true, len(shape.prefixes) > 0)
		add(externalIP, 8000, true, false)
		add(model.AnyAddr(family), uint16(30000+i), true, false)
		services = append(services, ruleset.Service{Name: name, Ports: []ruleset.Port{port}})
		clusterIP, balancer, externalIP = clusterIP.Next(), balancer.Next(), externalIP.Next()
	}
	return services
}

// classOf returns the class of a frontend, even if there is no endpoint for either kind of client.
func (s shape) classOf(frontend ruleset.Frontend) ruleset.Class {
	switch {
	case frontend.External && frontend.Local:
		return ruleset.SplitClass(s.local, s.cluster)
	case frontend.Local && s.local == 0:
		return ruleset.DropClass
	case frontend.Local:
		return ruleset.BalanceClass(s.local)
	case s.cluster == 0:
		return ruleset.RefuseClass
	}
	return ruleset.BalanceClass(s.cluster)
}

// endpointsOf returns endpoints with two port numbers in turn.
func endpointsOf(family model.Family, count int) []netip.AddrPort {
	addr := addressesOf(family).endpoint
	var endpoints []netip.AddrPort
	for i := range count {
		endpoints = append(endpoints, netip.AddrPortFrom(addr, []uint16{8080, 9090}[i%2]))
		addr = addr.Next()
	}
	return slices.Clip(endpoints)
}
