package packets_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// cniRules is a CNI's masquerading chain of one family. It masquerades packets of pods to addresses outside the pod ranges,
// and packets of other clients to pods of other nodes, as Flannel's iptables rules do (pkg/trafficmngr/iptables there).
// Once a chain has translated a connection's source, the kernel runs no further chains (nf_nat_inet_fn).
const cniRules = `
table %[1]s cni {
	chain masquerading {
		type nat hook postrouting priority srcnat; policy accept;
		%[1]s saddr %[2]s %[1]s daddr %[3]s return
		%[1]s saddr %[3]s %[1]s daddr %[2]s return
		%[1]s saddr != %[2]s %[1]s daddr %[2]s return
		%[1]s saddr %[3]s masquerade fully-random
		%[1]s saddr != %[3]s %[1]s daddr %[3]s masquerade fully-random
	}
}
`

// newTwoNodesWithCNI returns two nodes; on the first one a CNI and the proxy registered their chains in either
// order.
func newTwoNodesWithCNI(t *testing.T, cniFirst bool) *twoNodes {
	t.Helper()
	c := newTwoNodes(t, setup{config: clusterCIDR(), notOwned: true})
	node := c.nodes[0]
	ipv4, ipv6 := node.PodCIDRs()
	runNFT(t, node, fmt.Sprintf(cniRules, "ip", ipv4, fabric.PodsIPv4)+fmt.Sprintf(cniRules, "ip6", ipv6, fabric.PodsIPv6), "-f", "-")
	if cniFirst {
		runNFT(t, node, "", "delete table ip vicinity; delete table ip6 vicinity")
		c.restart(node)
		c.sync(node)
	}
	expect(t, "the CNI masquerades", c.host, pathsTo(podPort, c.far.IPv4, c.far.IPv6), seenAs(node.Namespace))
	return c
}

// eachOrder runs a test with a CNI that registers before the proxy and with one that registers after it. The kernel
// runs chains of one priority in an order that depends on the order of registration.
func eachOrder(t *testing.T, test func(*testing.T, *twoNodes)) {
	t.Helper()
	for name, cniFirst := range map[string]bool{"the CNI started first": true, "the proxy started first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newTwoNodesWithCNI(t, cniFirst))
		})
	}
}

// TestClientsAreRememberedThoughACNIMasquerades checks affinity where a CNI masquerades the connections of the node and
// other hosts to pods of other nodes.
func TestClientsAreRememberedThoughACNIMasquerades(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, c *twoNodes) {
		servers := []*pod{c.far}
		for i := range 5 {
			servers = append(servers, c.addServer(c.nodes[1], fmt.Sprintf("far-%d", i)))
		}
		c.apply(service(web.withEverything, affinity(affinityHour)).Merge(endpoints(servers...)))
		allPaths := web.paths(c.nodes[0], allKinds...)
		for _, client := range c.clients() {
			for name, to := range byNetwork(allPaths) {
				expectOneServerOnAll(t, name, client, to)
			}
		}
	})
}

// TestUnallocatedAddressesAreDroppedThoughACNIMasquerades covers a node on which a CNI masquerades packets of pods to
// addresses outside the pod ranges.
func TestUnallocatedAddressesAreDroppedThoughACNIMasquerades(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, c *twoNodes) {
		c.machineWith("elsewhere", unallocated...)
		clients, to := slices.Concat(c.pod, c.node), pathsTo(servicePort, unallocated...)
		expect(t, "no ServiceCIDR: the CNI masquerades", clients, to, seenAs(c.node[0]))
		c.apply(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6))
		expect(t, "the ServiceCIDR exists", clients, to, timesOut)
	})
}

// TestNoPriorityOfOursRemainsThoughACNIMasquerades checks that packets leave the node without one of our priorities.
func TestNoPriorityOfOursRemainsThoughACNIMasquerades(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, c *twoNodes) {
		node := c.nodes[0]
		runNFT(t, node, priorityCounters, "-f", "-")
		c.apply(service(web.withEverything).Merge(endpoints(c.far)))
		expect(t, "an endpoint on another node", c.clients(), web.paths(node, allKinds...), servedBy("far"))
		if got := counterPackets(t, node, "ours"); got != "0" {
			t.Errorf("%s packets left with one of our priorities", got)
		}
		if counterPackets(t, node, "any") == "0" {
			t.Error("no packet left, so nothing was tested")
		}
	})
}
