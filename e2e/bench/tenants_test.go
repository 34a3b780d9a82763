package bench_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// tenantLoad is the worst load on every node from a user with permission to write Services and EndpointSlices in one
// namespace.
type tenantLoad struct {
	name string
	// objects returns the tenant's objects, scaled by a factor; changed returns them with one change.
	objects, changed func(times int) model.Change
}

// sharedCluster is the cluster of the other users, whose changes a tenant may delay.
var sharedCluster = size{1_000, 10, true}

// tenantSteps are the measured steps of one tenant's objects: they are added, one thing in them changes, a proxy starts with
// them, and they are deleted.
var tenantSteps = []string{"add", "change", "restart", "delete"}

const tenant = "tenant"

var tenantLoads = []tenantLoad{
	{"source ranges: 1,000 x 20 addresses", func(times int) model.Change {
		return tenantService(func(service *model.Service) {
			service.LoadBalancerIPs = addressesFrom("198.19.0.0", 20)
			service.SourceRanges = prefixesFrom("20.0.0.0", 1000*times)
		}, 1)
	}, func(times int) model.Change {
		return tenantService(func(service *model.Service) {
			service.LoadBalancerIPs = addressesFrom("198.19.0.0", 20)
			service.SourceRanges = prefixesFrom("20.0.1.0", 1000*times)
		}, 1)
	}},
	{"external IPs: 500 x 1,000 endpoints", func(times int) model.Change {
		return tenantService(func(service *model.Service) { service.ExternalIPs = addressesFrom("198.19.0.0", 500*times) }, 1000*times)
	}, func(times int) model.Change {
		return tenantService(func(service *model.Service) { service.ExternalIPs = addressesFrom("198.19.0.0", 500*times) }, 1000*times-1)
	}},
	{"external IPs: 8,000", func(times int) model.Change {
		return tenantService(func(service *model.Service) { service.ExternalIPs = addressesFrom("198.18.0.0", 8000*times) }, 1)
	}, func(times int) model.Change {
		return tenantService(func(service *model.Service) { service.ExternalIPs = addressesFrom("198.18.0.0", 8000*times) }, 2)
	}},
	{"endpoints on this node: 20,000", func(times int) model.Change { return localEndpoints(20000 * times) },
		func(times int) model.Change { return localEndpoints(20000*times - 1) }},
	{"UDP, external IPs: 500 x 1,000 endpoints", func(times int) model.Change { return overUDP(500*times, 1000*times) },
		func(times int) model.Change { return overUDP(500*times, 1000*times-1) }},
	{"source ranges: 1,000 x 500 ports", func(times int) model.Change { return manyRestricted(500*times, 1000*times, 1) },
		func(times int) model.Change { return manyRestricted(500*times, 1000*times, 2) }},
	{"Services: 1,000 x 30 endpoints", func(times int) model.Change { return manyServices(1000*times, 30) },
		func(times int) model.Change { return manyServices(1000*times, 29) }},
	{"ports: 4,000", func(times int) model.Change { return manyPorts(4000*times, 1) },
		func(times int) model.Change { return manyPorts(4000*times, 2) }},
}

// tenantService returns the tenant's Service with a ClusterIP, edited, and its endpoints.
func tenantService(edit func(*model.Service), endpoints int) model.Change {
	name := model.ObjectName{Namespace: tenant, Name: tenant}
	service := &model.Service{
		Name:       name,
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.127.0.1")},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: servicePort}},
	}
	edit(service)
	slice := &model.EndpointSlice{Name: name, Service: name}
	for _, port := range service.Ports {
		slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: port.Protocol, Port: podPort})
	}
	for _, addr := range addressesFrom("10.64.0.0", endpoints) {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: addr, Endpoint: model.Endpoint{Node: "node-0", Zone: "zone-0", Ready: true, Serving: true},
		})
	}
	return model.Change{
		Services: map[model.ObjectName]*model.Service{name: service},
		Slices:   map[model.ObjectName]*model.EndpointSlice{name: slice},
	}
}

// localEndpoints returns the tenant's Service with all endpoints on the measured node.
func localEndpoints(endpoints int) model.Change {
	change := tenantService(func(*model.Service) {}, endpoints)
	for _, slice := range change.Slices {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Node = ownNode
		}
	}
	return change
}

func overUDP(addresses, endpoints int) model.Change {
	return tenantService(func(service *model.Service) {
		service.Ports[0].Protocol = model.UDP
		service.ExternalIPs = addressesFrom("198.19.0.0", addresses)
	}, endpoints)
}

// manyRestricted returns a Service with many ports and a long list of source ranges, which applies to each port.
func manyRestricted(ports, ranges, endpoints int) model.Change {
	change := manyPorts(ports, endpoints)
	for _, service := range change.Services {
		service.LoadBalancerIPs = addressesFrom("198.19.0.0", 1)
		service.SourceRanges = prefixesFrom("20.0.0.0", ranges)
	}
	return change
}

// manyServices returns many Services of the tenant that all change together.
func manyServices(services, endpoints int) model.Change {
	all := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for i, clusterIP := range addressesFrom("10.127.0.1", services) {
		single := tenantService(func(service *model.Service) { service.ClusterIPs = []netip.Addr{clusterIP} }, endpoints)
		name := model.ObjectName{Namespace: tenant, Name: fmt.Sprint(tenant, "-", i)}
		for _, service := range single.Services {
			service.Name = name
			all.Services[name] = service
		}
		for _, slice := range single.Slices {
			slice.Name, slice.Service = name, name
			all.Slices[name] = slice
		}
	}
	return all
}

// deletionOf returns the change that deletes all objects of a change.
func deletionOf(change model.Change) model.Change {
	deletions := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for name := range change.Services {
		deletions.Services[name], deletions.Slices[name] = nil, nil
	}
	return deletions
}

func manyPorts(ports, endpoints int) model.Change {
	return tenantService(func(service *model.Service) {
		service.Ports = nil
		for number := range ports {
			service.Ports = append(service.Ports,
				model.ServicePort{Name: fmt.Sprintf("p%d", number), Protocol: model.TCP, Port: uint16(1 + number)})
		}
	}, endpoints)
}

func addressesFrom(first string, count int) []netip.Addr {
	addr, addrs := netip.MustParseAddr(first), make([]netip.Addr, count)
	for i := range addrs {
		addrs[i], addr = addr, addr.Next()
	}
	return addrs
}

// prefixesFrom returns prefixes that are not adjacent.
func prefixesFrom(first string, count int) []netip.Prefix {
	prefixes := make([]netip.Prefix, count)
	for i, addr := range addressesFrom(first, 2*count) {
		if i%2 == 0 {
			prefixes[i/2] = netip.PrefixFrom(addr, addr.BitLen())
		}
	}
	return prefixes
}

// tenantRow has the times of one step with the tenant's objects, and with twice as many.
type tenantRow struct {
	name, step     string
	single, double time.Duration
}

// BenchmarkTenantLoad measures whether the cost of a tenant's objects is a sum or a product: twice the objects should take
// twice the time. A slow change delays the changes of all other users.
func BenchmarkTenantLoad(b *testing.B) {
	for _, c := range tenantLoads {
		b.Run(c.name, func(b *testing.B) {
			var single, double []time.Duration
			for b.Loop() {
				single, double = c.measure(b, 1), c.measure(b, 2)
			}
			for i, step := range tenantSteps {
				results.steep = append(results.steep, tenantRow{c.name, step, single[i], double[i]})
			}
		})
	}
}

// measure returns the time of each step.
func (s tenantLoad) measure(b *testing.B, factor int) []time.Duration {
	b.Helper()
	m := newMachine(b)
	cluster := sharedCluster.cluster()
	p := m.proxyOf(cluster)
	sync(b, p)
	var took []time.Duration
	timed := func(change model.Change) {
		started := time.Now()
		p.Apply(change)
		sync(b, p)
		took = append(took, time.Since(started))
	}
	timed(s.objects(factor))
	changed := s.changed(factor)
	timed(changed)
	p = m.proxyOf(cluster.Merge(changed))
	timed(model.Change{})
	timed(deletionOf(changed))
	return took
}
