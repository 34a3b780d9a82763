package bench_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// site is a standing network with a cluster of some size: two nodes with full tables, a pod on one that dials, and pods on the
// other that are the endpoints of every Service.
type site struct {
	size    size
	near    *machine
	dialler *dialler
	paths   []*path
}

// path is a way to reach the endpoints, and what connections took that way.
type path struct {
	name string
	// targets are dialled in turn, and far from each other.
	targets []netip.AddrPort
	dialled int
	taken   connections
}

func (p *path) next() netip.AddrPort {
	p.dialled++
	return p.targets[p.dialled*7919%len(p.targets)] // a prime
}

func newSite(b *testing.B, s size) *site {
	b.Helper()
	network := newFabric(b)
	near, far := addMachine(b, network, ownNode), addMachine(b, network, "far")
	built := &site{size: s, near: near}
	pod, err := near.AddPod("client")
	if err != nil {
		b.Fatal(err)
	}
	var servers []*fabric.Pod
	for number := range s.endpoints {
		server, err := far.AddPod(fmt.Sprintf("server-%d", number))
		if err != nil {
			b.Fatal(err)
		}
		servers = append(servers, server)
	}
	built.dialler = newDialler(b, pod, servers)
	built.paths = built.allPaths(servers)
	for _, machine := range []*machine{near, far} {
		// A connection that is closed is forgotten after a second and not after ten.
		if err := machine.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_close", "1"); err != nil {
			b.Fatal(err)
		}
		sync(b, machine.proxyOf(s.clusterOf(servers)))
	}
	runtime.GC() // the proxies are gone, and their tables stay
	return built
}

// clusterOf returns a cluster whose Services all lead to the same pods.
func (s size) clusterOf(pods []*fabric.Pod) model.Change {
	change := s.cluster()
	for _, slice := range change.Slices {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addr = pods[i].IPv4
			slice.Endpoints[i].Node = pods[i].Node.Name
		}
	}
	return change
}

// allPaths returns the paths in the order of the table. The first is the floor.
func (s *site) allPaths(servers []*fabric.Pod) []*path {
	straight := newPath("straight to the endpoint")
	for _, server := range servers {
		straight.add(server.IPv4, podPort)
	}
	same, clusterIPs := newPath("ClusterIP, always the same"), newPath("ClusterIP, another each time")
	for _, number := range s.size.all(onlyClusterIP) {
		clusterIPs.add(clusterIP(number), servicePort)
	}
	same.targets = clusterIPs.targets[:1]
	nodePorts, balancers := newPath("node port, another each time"), newPath("LB IP with source ranges, another each time")
	for _, number := range s.size.all(nodePort) {
		nodePorts.add(s.near.IPv4, nodePortOf(number))
	}
	for _, number := range s.size.all(loadBalancer) {
		balancers.add(loadBalancerIP(number), servicePort)
	}
	return []*path{straight, same, clusterIPs, nodePorts, balancers}
}

func newPath(name string) *path {
	return &path{name: name, taken: connections{accepted: map[int]int{}}}
}

func (p *path) add(addr netip.Addr, port uint16) {
	p.targets = append(p.targets, netip.AddrPortFrom(addr, port))
}
