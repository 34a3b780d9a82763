package bench_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// site is a network with a cluster of a given size: two nodes with full tables, a pod on one that dials, and pods on
// the other that are the endpoints of every Service.
type site struct {
	size    size
	near    *machine
	dialler *dialler
	paths   []*path
}

// path is a way to reach the endpoints, and the connections that were made over it.
type path struct {
	name string
	// metric is its name in the benchmark's metrics.
	metric string
	// targets are dialled in rotation, in an order that is scattered over the table.
	targets []netip.AddrPort
	dials   int
	results connections
}

func (p *path) next() netip.AddrPort {
	p.dials++
	return p.targets[p.dials*7919%len(p.targets)] // a prime
}

func newSite(b *testing.B, s size) *site {
	b.Helper()
	network := fabrictest.New(b)
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
		// The kernel deletes the entry of a closed connection after a second and not after ten.
		if err := machine.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_close", "1"); err != nil {
			b.Fatal(err)
		}
		sync(b, machine.proxyOf(s.clusterOf(servers)))
	}
	runtime.GC() // frees the proxies; their tables stay
	return built
}

// clusterOf returns a cluster in which all Services have the same pods as endpoints.
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

// clusterIPsDialled is the number of ClusterIPs that are dialled in a cluster of any size: as many as the smallest has.
const clusterIPsDialled = 10

// allPaths returns the paths in the order of the table. The first one is the floor. The paths after it have the same
// number of targets of the same kinds in every cluster, distributed over its table; their additional cost in a larger
// cluster is the cost of the table's size. The last three paths dial every frontend: in a large cluster the CPU caches
// have evicted a frontend before it is dialled again, in the smallest they never have.
func (s *site) allPaths(servers []*fabric.Pod) []*path {
	direct := newPath("directly to the endpoint", "direct")
	for _, server := range servers {
		direct.add(server.IPv4, podPort)
	}
	everyType, exposed, balanced := s.size.numbersOf(serviceTypes...), s.size.numbersOf(nodePort, loadBalancer), s.size.numbersOf(loadBalancer)
	sampled := spread(balanced, minExposed)
	return []*path{
		direct,
		newPath("ClusterIP, always the same", "one-ClusterIP").toClusterIPs(everyType[:1]),
		newPath("ClusterIP, ten of them", "ClusterIPs").toClusterIPs(spread(everyType, clusterIPsDialled)),
		newPath("node port, eight of them", "node-ports").toNodePorts(s.near, sampled),
		newPath("LB IP with source ranges, eight of them", "LB-IPs").toLoadBalancers(sampled),
		newPath("ClusterIP, each of all (cold caches)", "all-ClusterIPs").toClusterIPs(everyType),
		newPath("node port, each of all (cold caches)", "all-node-ports").toNodePorts(s.near, exposed),
		newPath("LB IP, each of all (cold caches)", "all-LB-IPs").toLoadBalancers(balanced),
	}
}

func newPath(name, metric string) *path {
	return &path{name: name, metric: metric, results: connections{accepted: map[int]int{}}}
}

func (p *path) toClusterIPs(numbers []int) *path {
	for _, number := range numbers {
		p.add(clusterIP(number), servicePort)
	}
	return p
}

func (p *path) toNodePorts(m *machine, numbers []int) *path {
	for _, number := range numbers {
		p.add(m.IPv4, nodePortOf(number))
	}
	return p
}

func (p *path) toLoadBalancers(numbers []int) *path {
	for _, number := range numbers {
		p.add(loadBalancerIP(number), servicePort)
	}
	return p
}

func (p *path) add(addr netip.Addr, port uint16) {
	p.targets = append(p.targets, netip.AddrPortFrom(addr, port))
}
