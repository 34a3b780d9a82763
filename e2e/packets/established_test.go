package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestEstablishedConnectionsAreNeverTouched checks that an open connection keeps its endpoint, whatever changes.
func TestEstablishedConnectionsAreNeverTouched(t *testing.T) {
	c := newCluster(t, 2)
	node := c.nodes[0]
	near, far := c.addServer(node, "near"), c.addServer(c.nodes[1], "far")
	clients := []*fabric.Namespace{c.addPod(node, "client").Namespace, node.Namespace, c.addHost("host", node)}
	everything := func(edit ...func(*model.Service)) model.Change {
		return service(append([]func(*model.Service){web.withEverything}, edit...)...)
	}
	c.apply(everything().Merge(endpoints(near)))
	// UDP flows have no end of their own; udp_flows_test.go tests when they end.
	to := overNetworks(web.paths(node, allKinds...), "tcp", "sctp")
	open := openConnections(t, clients, to)

	withoutTCP := func(s *model.Service) { s.Ports = s.Ports[1:] }
	otherNodePorts := func(s *model.Service) {
		for i := range s.Ports {
			s.Ports[i].NodePort++
		}
	}
	for _, step := range []struct {
		desc   string
		change model.Change
	}{
		{"a second endpoint was added", endpoints(near, far)},
		{"the tier changed: only the other zone has an endpoint", everything(topologyKeys(policy.Zone, policy.AnyNode)).Merge(endpoints(far))},
		{"the tier changed: this zone has an endpoint again", endpoints(near, far)},
		{"a hard key excludes everything", everything(topologyKeys("example.com/nobody"))},
		{"the policies are Local", everything(internalLocal, externalLocal).Merge(endpoints(near, far))},
		{"the policies are Local and all endpoints are on other nodes", endpoints(far)},
		{"all endpoints were removed", endpoints()},
		{"the endpoint terminates", web.slices([]*pod{near}, model.Endpoint{Serving: true, Terminating: true})},
		{"session affinity was enabled", everything(affinity(affinityHour)).Merge(endpoints(near, far))},
		{"the source ranges exclude all clients", everything(sourceRanges("192.0.2.0/24", "2001:db8:ffff::/48"))},
		{"the port was deleted", everything(withoutTCP)},
		{"the node ports changed", everything(otherNodePorts)},
		{"only the ClusterIP remains", service()},
		{"a ServiceCIDR was added", serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6)},
		{"the Service was deleted", web.deletion()},
		{"the Service was created again", everything()},
	} {
		c.apply(step.change)
		expectContinues(t, step.desc, open)
	}

	c.restart(node)
	c.sync(node)
	expectContinues(t, "the proxy restarted", open)
	node.proxy.ForceFullSync()
	c.sync(node)
	expectContinues(t, "full sync", open)
	node.proxy.Apply(model.Change{LocalAddrs: []netip.Addr{}})
	c.sync(node)
	expectContinues(t, "the proxy has no addresses of the node", open)
}

// TestAnEstablishedFlowKeepsItsEndpoint covers UDP, too: the endpoint stays the same while a socket sends from the same
// port, however many other flows start.
func TestAnEstablishedFlowKeepsItsEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	node := c.nodes[0]
	near, far := c.addServer(node, "near"), c.addServer(c.nodes[1], "far")
	clients := []*fabric.Namespace{c.addPod(node, "client").Namespace, node.Namespace, c.addHost("host", node)}
	c.apply(service(web.withEverything).Merge(endpoints(near)))
	open := openConnections(t, clients, web.paths(node, allKinds...))
	c.apply(endpoints(near, far))
	for range 8 {
		expectContinues(t, "another endpoint was added", open)
	}
	node.proxy.ForceFullSync()
	c.sync(node)
	expectContinues(t, "full sync", open)
}
