package packets_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// addFilter loads a filter chain with one rule on a node. Its counter has the comment "dropped".
func addFilter(t *testing.T, n *node, hook string, priority int, match, verdict string) {
	t.Helper()
	runNFT(t, n, fmt.Sprintf(`table inet witness {
	chain denied {
		type filter hook %[1]s priority %[2]d; policy accept;
		%[3]s counter comment "dropped"
		%[3]s %[4]s
	}
}
`, hook, priority, match, verdict), "-f", "-")
}

// waitForDrops waits until the filter has dropped at least the given number of packets.
func waitForDrops(t *testing.T, n *node, atLeast int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%d packets dropped by the filter", atLeast), func() bool {
		dropped, err := strconv.Atoi(counterPackets(t, n, "dropped"))
		return err == nil && dropped >= atLeast
	})
}

// TestFilteredConnectionsAreNotDemand checks that 100 connection attempts do not count if a filter on the client's node
// drops or rejects them, however often their SYNs are retransmitted. The hooks and priorities are those of network
// policies and firewalls. Once the filter is removed, the connections are established and count once each, like new
// ones.
func TestFilteredConnectionsAreNotDemand(t *testing.T) {
	const many = 100
	clusterIP := netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort)
	for name, test := range map[string]struct {
		hook      string
		priority  int
		onTheNode bool // the endpoint is in the node's own network
		byNode    bool // the client is the node itself
	}{
		"forward":                               {hook: "forward", priority: 0},
		"forward, as firewalld":                 {hook: "forward", priority: 10},
		"postrouting, as kube-network-policies": {hook: "postrouting", priority: 95},
		"input":                                 {hook: "input", priority: 0, onTheNode: true},
		"input, as firewalld":                   {hook: "input", priority: 10, onTheNode: true},
		"output":                                {hook: "output", priority: 0, byNode: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			n := c.nodes[0]
			client := c.addPod(n, "client").Namespace
			if test.byNode {
				client = n.Namespace
			}
			server := (*pod)(nil)
			if test.onTheNode {
				server = c.inHostNetwork(n)
			} else {
				server = c.addServer(n, "server")
			}
			demand := c.countDemand(n)
			c.apply(web.service(web.withEverything, bounded).Merge(web.endpoints(server)))
			demand.read()
			const dnatOriginal = "ct status dnat ct direction original"
			if !test.byNode && test.hook != "postrouting" { // nft has no reject in postrouting
				addFilter(t, n, test.hook, test.priority, dnatOriginal, "reject")
				expect(t, "while a filter rejects the packets", []*fabric.Namespace{client}, web.paths(n, allKinds...), notServed)
				runNFT(t, n, "", "delete", "table", "inet", "witness")
			}
			addFilter(t, n, test.hook, test.priority, dnatOriginal, "drop")
			var pending dials
			if !test.byNode { // the node's own socket fails at once
				pending = dialMany(t, client, clusterIP, many)
				waitForDrops(t, n, 2*many)
			}
			expect(t, "while a filter drops the packets", []*fabric.Namespace{client}, web.paths(n, allKinds...), timesOut)
			demand.expect("after a filter rejected and dropped all packets", map[string]uint64{})

			runNFT(t, n, "", "delete", "table", "inet", "witness")
			if got := pending.connected(time.Now().Add(fabric.Timeout)); got != len(pending) {
				t.Errorf("%d of %d clients connected after the filter was removed", got, len(pending))
			}
			count := dialEach(t, []*fabric.Namespace{client}, web.paths(n, allKinds...), 4, succeeds) + uint64(len(pending))
			demand.expect("after the filter was removed", map[string]uint64{"default/web": count})
		})
	}
}

// TestASYNThatIsSentAgainCountsOnce drops the first SYNs of each connection attempt at the server.
func TestASYNThatIsSentAgainCountsOnce(t *testing.T) {
	t.Parallel()
	const many = 100
	c := newCluster(t, 2)
	near, far := c.nodes[0], c.nodes[1]
	client, server := c.addPod(near, "client"), c.addServer(far, "server")
	demand := c.countDemand(near)
	c.apply(web.service(bounded).Merge(web.endpoints(server)))
	demand.read()
	addFilter(t, far, "forward", 0, "tcp flags syn", "drop")
	pending := dialMany(t, client.Namespace, netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort), many)
	waitForDrops(t, far, 2*many)
	runNFT(t, far, "", "delete", "table", "inet", "witness")
	if got := pending.connected(time.Now().Add(fabric.Timeout)); got != many {
		t.Errorf("%d of %d clients connected", got, many)
	}
	demand.expect("after each SYN was sent three times", map[string]uint64{"default/web": many})
}

// TestANodePortIsCountedByItselfAlone checks that other frontends with the number of a node port do not count as the
// node port, although the table has no address for it.
func TestANodePortIsCountedByItselfAlone(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]model.NodePortAddresses{
		"on the node's own addresses": {Primary: true},
		"on all addresses":            {},
	} {
		t.Run(name, func(t *testing.T) {
			config := clusterCIDR()
			config.NodePorts = addresses
			c := setUp(t, setup{nodes: 1, config: config})
			n := c.nodes[0]
			server, host := c.addServer(n, "server"), c.addHost("host", n)
			clients := []*fabric.Namespace{c.addPod(n, "client").Namespace, n.Namespace, host}
			demand := c.countDemand(n)
			samePort := app{"same-port", 11}
			onThatPort := func(s *model.Service) {
				for i := range s.Ports {
					s.Ports[i].Port = web.nodePort()
				}
			}
			c.apply(web.service(web.withNodePorts, bounded).Merge(web.endpoints(server)))
			c.apply(samePort.service(samePort.withExternalIPs, onThatPort).Merge(samePort.endpoints(server)))
			demand.read()
			otherPaths := pathsTo(web.nodePort(), append(samePort.addrs(model.ClusterIP), samePort.addrs(model.ExternalIP)...)...)
			dialEach(t, clients, otherPaths, 1, succeeds)
			c.serveOn(server.Namespace, web.nodePort())
			dialEach(t, clients, pathsTo(web.nodePort(), server.IPv4, server.IPv6), 1, succeeds)
			demand.expect("after dialling other frontends with that port number", map[string]uint64{})
			count := dialEach(t, clients, web.paths(n, model.NodePort), 3, succeeds)
			demand.expect("after dialling the node port", map[string]uint64{"default/web": count})
		})
	}
}
