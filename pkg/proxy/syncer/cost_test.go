package syncer_test

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func manyAddrs(first string, count int) []netip.Addr {
	addr, all := netip.MustParseAddr(first), make([]netip.Addr, count)
	for i := range all {
		all[i], addr = addr, addr.Next()
	}
	return all
}

// largeServiceWith returns one Service with a number of ports, external IPs and endpoints. All endpoints are on this
// node.
func largeServiceWith(protocol model.Protocol, ports, addresses, endpoints int) model.Change {
	name := model.ObjectName{Namespace: "tenant", Name: "large"}
	service := &model.Service{Name: name, ClusterIPs: addrs("10.127.0.1"), ExternalIPs: manyAddrs("198.18.0.0", addresses)}
	slice := &model.EndpointSlice{Name: name, Service: name}
	for number := range ports {
		port := model.ServicePort{Name: fmt.Sprint("p", number), Protocol: protocol, Port: uint16(1 + number)}
		service.Ports = append(service.Ports, port)
		slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: protocol, Port: 8080})
	}
	for _, addr := range manyAddrs("10.64.0.0", endpoints) {
		endpoint := model.Endpoint{Node: self, Ready: true, Serving: true}
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: endpoint})
	}
	return oneService(service, slice)
}

// restrictedTo gives each Service a load balancer with a number of source ranges.
func restrictedTo(change model.Change, ranges int) model.Change {
	for _, service := range change.Services {
		service.LoadBalancerIPs = addrs("203.0.113.1")
		for i, addr := range manyAddrs("20.0.0.0", 2*ranges) {
			if i%2 == 0 {
				service.SourceRanges = append(service.SourceRanges, netip.PrefixFrom(addr, 32))
			}
		}
	}
	return change
}

// countingKernel accepts everything, and counts the elements.
type countingKernel struct{ elements int }

func (k *countingKernel) Commit(_ context.Context, batch ruleset.Batch) error {
	k.elements += batch.Count(model.IPv4, ruleset.Add) + batch.Count(model.IPv4, ruleset.Delete)
	return nil
}

func (k *countingKernel) Objects(context.Context, model.Family) (ruleset.Objects, error) {
	return ruleset.Objects{}, nil
}

// TestTheCostOfOneTenantIsASum: to add, change and delete eight times as many objects takes about eight times the
// elements and the CPU time. A product or a square would take 64 times as much.
func TestTheCostOfOneTenantIsASum(t *testing.T) {
	for name, test := range map[string]struct{ before, after func(times int) model.Change }{
		"external IPs": {
			func(times int) model.Change { return largeServiceWith(model.TCP, 1, 1000*times, 1) },
			func(times int) model.Change { return largeServiceWith(model.TCP, 1, 1000*times, 2) },
		},
		"external IPs and endpoints": {
			func(times int) model.Change { return largeServiceWith(model.TCP, 1, 200*times, 300*times) },
			func(times int) model.Change { return largeServiceWith(model.TCP, 1, 200*times, 300*times-1) },
		},
		"external IPs and endpoints over UDP": {
			func(times int) model.Change { return largeServiceWith(model.UDP, 1, 200*times, 300*times) },
			func(times int) model.Change { return largeServiceWith(model.UDP, 1, 200*times, 300*times-1) },
		},
		"endpoints": {
			func(times int) model.Change { return largeServiceWith(model.TCP, 1, 0, 2000*times) },
			func(times int) model.Change { return largeServiceWith(model.TCP, 1, 0, 2000*times-1) },
		},
		"ports": {
			func(times int) model.Change { return largeServiceWith(model.TCP, 500*times, 0, 1) },
			func(times int) model.Change { return largeServiceWith(model.TCP, 500*times, 0, 2) },
		},
		"ports and source ranges": {
			func(times int) model.Change {
				return restrictedTo(largeServiceWith(model.TCP, 100*times, 0, 1), 500*times)
			},
			func(times int) model.Change {
				return restrictedTo(largeServiceWith(model.TCP, 100*times, 0, 1), 500*times-1)
			},
		},
		"nodes and Services": {
			func(times int) model.Change { return racks(300*times, "a") },
			func(times int) model.Change { return racks(300*times, "b") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			const times, limit = 8, 24
			var once, many time.Duration
			for try := 1; ; try++ { // noise of other processes can make the short run appear too short
				once, many = cpuTime(t, test.before, test.after, 1), cpuTime(t, test.before, test.after, times)
				if many <= limit*once {
					return
				}
				if try == 5 {
					t.Fatalf("%d times as many objects take %s of CPU time, the base takes %s: %.1f times as long",
						times, many, once, float64(many)/float64(once))
				}
			}
		})
	}
}

// racks returns nodes, each with its own rack, and as many Services that prefer endpoints by rack.
func racks(count int, rack string) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Nodes: map[string]*model.Node{}}
	for number, addr := range manyAddrs("10.127.0.0", count) {
		name := model.ObjectName{Namespace: "tenant", Name: fmt.Sprint("service-", number)}
		change.Services[name] = &model.Service{
			Name: name, ClusterIPs: []netip.Addr{addr}, Topology: policy.Topology{Keys: []policy.Key{"example.com/rack"}},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}
		node := fmt.Sprint("node-", number)
		change.Nodes[node] = &model.Node{Name: node, Labels: map[string]string{"example.com/rack": rack}}
	}
	return change
}

// cpuTime returns the CPU time of adding, changing and deleting the objects.
func cpuTime(t *testing.T, initial, changed func(int) model.Change, times int) time.Duration {
	t.Helper()
	kernel := &countingKernel{}
	p := newProxy(kernel)
	mustSync(t, p)
	first, second := initial(times), changed(times)
	deletion := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for name := range first.Services {
		deletion.Services[name], deletion.Slices[name] = nil, nil
	}
	before := cpuTimeUsed(t)
	for _, change := range []model.Change{first, second, deletion} {
		p.Apply(change)
		mustSync(t, p)
	}
	took := cpuTimeUsed(t) - before
	if written := kernel.elements; written > 60_000*times {
		t.Errorf("%d times as many objects: %d elements were written, which are too many", times, written)
	}
	return took
}

func cpuTimeUsed(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestADedicatedMapIsListed checks that nft lists a port with its own map as the model prints it, and that after each
// change the tables equal those of a fresh start.
func TestADedicatedMapIsListed(t *testing.T) {
	kernel := newRealKernel(t)
	p := newProxy(kernel)
	mustSync(t, p)
	for _, step := range []struct{ addresses, endpoints, maps int }{{200, 40, 1}, {200, 41, 1}, {199, 12, 1}, {3, 12, 0}, {200, 40, 1}} {
		change := largeServiceWith(model.UDP, 1, step.addresses, step.endpoints)
		for _, service := range change.Services {
			service.ExternalTrafficLocal = step.endpoints == 41
		}
		p.Apply(change)
		mustSync(t, p)
		if got := len(dedicatedMaps(kernel.model.Tables.Objects(model.IPv4))); got != step.maps {
			t.Errorf("%+v: %d ports have a dedicated map", step, got)
		}
		checkLikeFreshStart(t, &kernel.model, change)
		kernel.expectSameListing(t)
	}
	p = newProxy(kernel)
	change := largeServiceWith(model.UDP, 1, 200, 39)
	p.Apply(change)
	mustSync(t, p)
	checkLikeFreshStart(t, &kernel.model, change)
	kernel.expectSameListing(t)
}
