package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// These are addresses that a node may have in addition to its own.
var (
	secondAddrs    = []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8:0:c::7")}
	secondPrefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:0:c::/64")}
)

// nodePorts is a cluster with a Service that has node ports, an endpoint on each of its two nodes, and every kind of
// client.
type nodePorts struct {
	*cluster
	node      *node
	near, far *pod
	pod, host *fabric.Namespace
}

func newNodePorts(t *testing.T, addresses model.NodePortAddresses) *nodePorts {
	t.Helper()
	config := clusterCIDR()
	config.NodePorts = addresses
	c := setUp(t, setup{nodes: 2, config: config})
	n := &nodePorts{
		cluster: c, node: c.nodes[0], near: c.addServer(c.nodes[0], "near"), far: c.addServer(c.nodes[1], "far"),
		pod: c.addPod(c.nodes[0], "client").Namespace, host: c.addHost("host", c.nodes[0]),
	}
	for _, prefix := range secondPrefixes {
		if err := n.host.RouteVia(prefix, n.node.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	c.apply(service(web.withNodePorts).Merge(endpoints(n.near)))
	return n
}

func (n *nodePorts) clients() []*fabric.Namespace {
	return []*fabric.Namespace{n.pod, n.node.Namespace, n.host}
}

func (n *nodePorts) ownPaths() []path { return web.paths(n.node, model.NodePort) }

var secondPaths = pathsTo(web.nodePort(), secondAddrs...)

// TestNodePortsAreServedOnTheNodesOwnAddressesByDefault checks that no other address serves them, also if it is added
// later.
func TestNodePortsAreServedOnTheNodesOwnAddressesByDefault(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Primary: true})
	n.addAddrs(n.node, secondAddrs...)
	n.reportAddrs(n.node)
	expect(t, "the node's own address", n.clients(), n.ownPaths(), servedBy("near"))
	expect(t, "another address of the node", n.clients(), secondPaths, notServed)
	n.serveOn(n.node.Namespace, web.nodePort(), secondAddrs...)
	expect(t, "a socket on another address of the node", n.clients(), secondPaths, servedBy(n.node.Name))
}

// TestNodePortsFollowTheNodeObject checks that node ports move to other addresses with the Node object. An address that
// is on no interface serves nothing.
func TestNodePortsFollowTheNodeObject(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Primary: true})
	setNodeAddrs := func(addrs ...netip.Addr) {
		object := n.node.object()
		object.Addresses = addrs
		n.apply(model.Change{Nodes: map[string]*model.Node{n.node.Name: object}})
	}
	setNodeAddrs(secondAddrs...)
	expect(t, "an address that the Node object no longer has", n.clients(), n.ownPaths(), notServed)
	expect(t, "an address that is on no interface", n.clients(), secondPaths, notServed)
	n.addAddrs(n.node, secondAddrs...)
	n.reportAddrs(n.node)
	expect(t, "the address was added to the node", n.clients(), secondPaths, servedBy("near"))
	setNodeAddrs(n.node.IPv4)
	expect(t, "a family without an address in the Node object", n.clients(), n.ownPaths()[3:], notServed)
	expect(t, "a family with an address in the Node object", n.clients(), n.ownPaths()[:3], servedBy("near"))
	setNodeAddrs(n.node.IPv4, n.node.IPv6)
	expect(t, "both families again", n.clients(), n.ownPaths(), servedBy("near"))
}

// TestNodePortAddressesAppearAndVanish adds and removes addresses inside the configured prefixes.
func TestNodePortAddressesAppearAndVanish(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Prefixes: secondPrefixes})
	expect(t, "an address outside the prefixes", n.clients(), n.ownPaths(), notServed)
	for range 2 {
		expect(t, "an address that no interface has", n.clients(), secondPaths, notServed)
		n.addAddrs(n.node, secondAddrs...)
		expect(t, "an address that was not reported to the proxy", n.clients(), secondPaths, notServed)
		n.reportAddrs(n.node)
		expect(t, "an address inside the prefixes", n.clients(), secondPaths, servedBy("near"))
		n.restart(n.node)
		n.sync(n.node)
		expect(t, "after a restart", n.clients(), secondPaths, servedBy("near"))
		for _, addr := range secondAddrs {
			if err := n.node.RemoveAddr(addr); err != nil {
				t.Fatal(err)
			}
		}
		n.reportAddrs(n.node)
	}
	expect(t, "an address that was removed", n.clients(), secondPaths, notServed)
}

// TestNodePortsOnAllAddresses checks that a new address serves node ports before it is reported to the proxy. Loopback
// addresses do not serve them.
func TestNodePortsOnAllAddresses(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{})
	n.addAddrs(n.node, secondAddrs...)
	expect(t, "the node's own address", n.clients(), n.ownPaths(), servedBy("near"))
	expect(t, "another address of the node", n.clients(), secondPaths, servedBy("near"))
	expect(t, "an address that the node does not have", n.clients(),
		pathsTo(web.nodePort(), secondAddrs[0].Next(), secondAddrs[1].Next()), notServed)
	expectNotOnLoopback(t, n)
}

// TestLoopbackNeverServesNodePorts covers loopback addresses inside the configured prefixes.
func TestLoopbackNeverServesNodePorts(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Prefixes: []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("172.30.0.0/24"),
		netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fd00:30::/64"),
	}})
	expect(t, "the node's own address", n.clients(), n.ownPaths(), servedBy("near"))
	expectNotOnLoopback(t, n)
}

func expectNotOnLoopback(t *testing.T, n *nodePorts) {
	t.Helper()
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.IPv6Loopback()}
	node := []*fabric.Namespace{n.node.Namespace}
	expect(t, "loopback without a socket", node, pathsTo(web.nodePort(), loopback...), notServed)
	n.serveOn(n.node.Namespace, web.nodePort(), loopback...)
	expect(t, "a socket on loopback", node, pathsTo(web.nodePort(), loopback...), servedBy(n.node.Name))
}

// TestPrefixesOfOneFamilyKeepTheOtherOnAllAddresses checks the same behaviour as kube-proxy's.
func TestPrefixesOfOneFamilyKeepTheOtherOnAllAddresses(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Prefixes: secondPrefixes[:1]})
	expect(t, "IPv4, restricted to another prefix", n.clients(), n.ownPaths()[:3], notServed)
	expect(t, "IPv6, not restricted", n.clients(), n.ownPaths()[3:], servedBy("near"))
}

// TestANodePortWinsOverALocalSocket also covers a Service without endpoints. The proxy opens no socket for the
// node port, so the local one can be bound.
func TestANodePortWinsOverALocalSocket(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Primary: true})
	n.serveOn(n.node.Namespace, web.nodePort())
	expect(t, "an endpoint", n.clients(), n.ownPaths(), servedBy("near"))
	n.apply(endpoints())
	expect(t, "no endpoint", n.clients(), overNetworks(n.ownPaths(), "tcp"), refused)
	n.apply(service(web.withNodePorts, externalLocal).Merge(endpoints(n.far)))
	expect(t, "endpoints only on other nodes", []*fabric.Namespace{n.host}, n.ownPaths(), timesOut)
	expect(t, "endpoints only on other nodes", []*fabric.Namespace{n.pod, n.node.Namespace}, n.ownPaths(), servedBy("far"))
	n.apply(service())
	expect(t, "no node port any more", n.clients(), n.ownPaths(), servedBy(n.node.Name))
}

// TestANodePortIsForThisNodeOnly checks that packets to another node's address are forwarded, and that the other node's
// proxy serves them.
func TestANodePortIsForThisNodeOnly(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Primary: true})
	other := n.nodes[1]
	n.apply(service(web.withNodePorts, externalLocal).Merge(endpoints(n.near, n.far)))
	clients, to := []*fabric.Namespace{n.host, n.node.Namespace}, web.paths(other, model.NodePort)
	for range 8 {
		expect(t, "a node port of the other node", clients, to, servedBy("far"))
	}
	n.apply(endpoints(n.near))
	expect(t, "a node port of the other node, which has no endpoint", clients, to, timesOut)
}

// TestSourceRangesDoNotConcernNodePorts covers external IPs, too.
func TestSourceRangesDoNotConcernNodePorts(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Primary: true})
	n.apply(service(web.withEverything, sourceRanges("192.0.2.0/24", "2001:db8:ffff::/48")))
	expect(t, "node ports and external IPs", n.clients(), web.paths(n.node, model.NodePort, model.ExternalIP), servedBy("near"))
	expect(t, "load-balancer IPs", n.clients(), web.paths(n.node, model.LoadBalancerIP), timesOut)
}

// TestALoadBalancerWithoutNodePorts covers a Service with allocateLoadBalancerNodePorts: false.
func TestALoadBalancerWithoutNodePorts(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, model.NodePortAddresses{Primary: true})
	n.apply(service(web.withLoadBalancer))
	expect(t, "the load-balancer IP", n.clients(), web.paths(n.node, model.LoadBalancerIP), servedBy("near"))
	expect(t, "the former node port", n.clients(), n.ownPaths(), notServed)
}
