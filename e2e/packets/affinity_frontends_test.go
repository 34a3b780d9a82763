package packets_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

const affinityHour = time.Hour

// byNetwork groups paths by protocol, and thereby by port of the Service, and by family. The frontends of a group share
// the affinity of a client.
func byNetwork(all []path) map[string][]path {
	shared := map[string][]path{}
	for _, p := range all {
		name := p.network + " " + p.family().String()
		shared[name] = append(shared[name], p)
	}
	return shared
}

// expectOneServerOnAll checks that the same server responds over all paths, several times each, and returns its name.
func expectOneServerOnAll(t *testing.T, desc string, client *fabric.Namespace, to []path) string {
	t.Helper()
	const times = 4
	first := ""
	for range times {
		for _, p := range to {
			got := mustRequest(t, client, p).Pod
			if first == "" {
				first = got
			}
			if got != first {
				t.Errorf("%s: %s from %s: %s replied after %s", desc, p, client.Name, got, first)
				return first
			}
		}
	}
	return first
}

// newSixServers returns a cluster of two nodes with three servers each, and every kind of client of the first node.
func newSixServers(t *testing.T) (*cluster, []*pod, []*fabric.Namespace) {
	t.Helper()
	c := newCluster(t, 2)
	var servers []*pod
	for i := range 6 {
		servers = append(servers, c.addServer(c.nodes[i%2], fmt.Sprintf("server-%d", i)))
	}
	node := c.nodes[0]
	return c, servers, []*fabric.Namespace{c.addPod(node, "client").Namespace, node.Namespace, c.addHost("host", node)}
}

// TestAClientKeepsItsEndpointOnEveryFrontend checks that the frontends of a Service port share their affinity, whatever
// happens to other Services.
func TestAClientKeepsItsEndpointOnEveryFrontend(t *testing.T) {
	t.Parallel()
	c, servers, clients := newSixServers(t)
	node := c.nodes[0]
	c.apply(service(web.withEverything, affinity(affinityHour)).Merge(endpoints(servers...)))
	serverOf := map[string]string{}
	check := func(desc string) {
		t.Helper()
		for _, client := range clients {
			for name, to := range byNetwork(web.paths(node, allKinds...)) {
				key := client.Name + " " + name
				got := expectOneServerOnAll(t, desc, client, to)
				if before, known := serverOf[key]; known && got != before {
					t.Errorf("%s: %s has endpoint %s, want %s as before", desc, key, got, before)
				}
				serverOf[key] = got
			}
		}
	}
	check("at first")
	c.apply(service(web.withNodePorts, web.withLoadBalancer, affinity(affinityHour)))
	c.apply(service(web.withEverything, affinity(2*affinityHour), func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Name: "more", Protocol: model.TCP, Port: 81})
	}))
	check("the Service changed")
	used := map[string]bool{}
	for _, name := range serverOf {
		used[name] = true
	}
	var remaining []*pod
	for _, server := range servers {
		if used[server.Name] {
			remaining = append(remaining, server)
		}
	}
	c.apply(endpoints(remaining...))
	check("endpoints without clients were removed")
	c.apply(endpoints(servers...))
	check("endpoints were added")
	c.restart(node)
	c.sync(node)
	check("the proxy restarted")
	node.proxy.ForceFullSync()
	c.sync(node)
	check("full sync")
}

// TestAffinityIsSharedByAllFrontends checks that it does not matter which frontend a client uses first.
func TestAffinityIsSharedByAllFrontends(t *testing.T) {
	t.Parallel()
	c, servers, clients := newSixServers(t)
	node := c.nodes[0]
	for number, kind := range allKinds {
		backend := app{strings.ToLower(kind.String()), byte(41 + number)}
		c.apply(backend.service(backend.withEverything, affinity(affinityHour)).Merge(backend.endpoints(servers...)))
		for _, client := range clients {
			allPaths := byNetwork(backend.paths(node, allKinds...))
			for name, to := range byNetwork(backend.paths(node, kind)) {
				first := expectOneServerOnAll(t, "the first frontend is a "+kind.String(), client, to)
				if got := expectOneServerOnAll(t, "after a "+kind.String(), client, allPaths[name]); got != first {
					t.Errorf("%s from %s: %s replies on all frontends, %s on its %s", name, client.Name, got, first, kind)
				}
			}
		}
	}
}

// manyClients is the number of clients or ports at which chance sends all of them to one of two endpoints once in 2^30
// runs.
const manyClients = 31

// TestAffinityIsPerClient includes clients that have the same address for the endpoints, because their node
// masquerades them.
func TestAffinityIsPerClient(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	node := c.nodes[0]
	servers := []*pod{c.addServer(node, "near"), c.addServer(c.nodes[1], "far")}
	c.apply(service(web.withNodePorts, affinity(affinityHour)).Merge(endpoints(servers...)))
	seen := map[string]bool{}
	for i := range manyClients {
		host := c.addHost(fmt.Sprintf("host-%d", i), node)
		seen[expectOneServerOnAll(t, "a host", host, overNetworks(web.paths(node, model.NodePort), "tcp")[:1])] = true
	}
	if len(seen) != 2 {
		t.Errorf("all hosts have endpoint %v, want both endpoints in use", seen)
	}
}

// TestAffinityIsPerPort checks that the ports of a Service have separate affinity.
func TestAffinityIsPerPort(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b")}
	client := c.addPod(c.nodes[0], "client").Namespace
	change := service(affinity(affinityHour), func(s *model.Service) {
		s.Ports = nil
		for i := range manyClients {
			s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprintf("p%d", i), Protocol: model.TCP, Port: servicePort + uint16(i)})
		}
	}).Merge(endpoints(servers...))
	for _, slice := range change.Slices {
		slice.Ports = nil
		for i := range manyClients {
			slice.Ports = append(slice.Ports, model.SlicePort{Name: fmt.Sprintf("p%d", i), Protocol: model.TCP, Port: podPort})
		}
	}
	c.apply(change)
	seen := map[string]bool{}
	for i := range manyClients {
		seen[expectOneServerOnAll(t, "a port", client, []path{paths[0].withPort(servicePort + uint16(i))})] = true
	}
	if len(seen) != 2 {
		t.Errorf("all ports have endpoint %v, want both endpoints in use", seen)
	}
}

// TestAffinityNeverOverridesAPolicy checks that a client with affinity to an endpoint on another node stays on this
// node where a policy requires it.
func TestAffinityNeverOverridesAPolicy(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	internal := web.paths(c.nodes[0], model.ClusterIP)
	clients := [][]*fabric.Namespace{c.pod, c.node, c.host}
	c.apply(service(web.withEverything, externalLocal, affinity(affinityHour)).Merge(endpoints(c.far)))
	for _, client := range clients {
		expect(t, "affinity to the only endpoint, on another node", client, internal, servedBy("far"))
	}
	c.apply(endpoints(c.near, c.far))
	for _, client := range clients {
		expect(t, "the endpoint with affinity", client, internal, servedBy("far"))
	}
	for range 4 {
		expect(t, "externalTrafficPolicy Local", c.host, c.external, servedBy("near"))
	}
	expect(t, "the short circuit", c.pod, c.external, servedBy("far"))
	expect(t, "the short circuit", c.node, c.external, servedBy("far"))

	c.apply(service(web.withEverything, internalLocal, affinity(affinityHour)))
	for range 4 {
		expect(t, "internalTrafficPolicy Local", c.pod, internal, servedBy("near"))
		expect(t, "internalTrafficPolicy Local", c.host, internal, servedBy("near"))
	}
	c.apply(service(web.withEverything, internalLocal, affinity(affinityHour)).Merge(endpoints(c.far)))
	expect(t, "internalTrafficPolicy Local, endpoints only on other nodes", c.host, internal, timesOut)
}

// TestANewTimeoutCountsFromTheNextConnection checks that a changed affinity timeout applies from the client's next
// connection.
func TestANewTimeoutCountsFromTheNextConnection(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b"), c.addServer(c.nodes[0], "c")}
	client := c.addPod(c.nodes[0], "client").Namespace
	c.apply(service(affinity(affinityHour)).Merge(endpoints(servers...)))
	server := expectOneServer(t, client, paths[0], 8)
	c.apply(service(affinity(time.Second)))
	if got := mustRequest(t, client, paths[0]).Pod; got != server {
		t.Errorf("%s replies under the new timeout, want %s", got, server)
	}
	expectAffinityExpires(t, client, paths[0], time.Second)
}
