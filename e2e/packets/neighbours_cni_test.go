package packets_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// cni is a CNI's masquerading chain of one family. It masquerades packets of pods to addresses outside the pod ranges,
// and packets of other clients to pods of other nodes, as Flannel's iptables rules do (pkg/trafficmngr/iptables there).
// Once a chain has translated a connection's source, the kernel runs no further chains (nf_nat_inet_fn).
const cni = `
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

// newTownWithCNI returns two nodes; on the first one a CNI and the proxy registered their chains in either
// order.
func newTownWithCNI(t *testing.T, cniFirst bool) *town {
	t.Helper()
	here := newTown(t, setup{config: clusterCIDR(), notOwned: true})
	node := here.nodes[0]
	ipv4, ipv6 := node.PodCIDRs()
	runNFT(t, node, fmt.Sprintf(cni, "ip", ipv4, fabric.PodsIPv4)+fmt.Sprintf(cni, "ip6", ipv6, fabric.PodsIPv6), "-f", "-")
	if cniFirst {
		runNFT(t, node, "", "delete table ip vicinity; delete table ip6 vicinity")
		here.restart(node)
		here.sync(node)
	}
	expect(t, "the CNI masquerades", here.host, pathsTo(podPort, here.far.IPv4, here.far.IPv6), seenAs(node.Namespace))
	return here
}

// eachOrder runs a test with a CNI that registers before the proxy and with one that registers after it. The kernel
// runs chains of one priority in an order that depends on the order of registration.
func eachOrder(t *testing.T, test func(*testing.T, *town)) {
	t.Helper()
	for name, cniFirst := range map[string]bool{"the CNI started first": true, "the proxy started first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newTownWithCNI(t, cniFirst))
		})
	}
}

// TestClientsAreRememberedThoughACNIMasquerades checks affinity where a CNI masquerades the connections of the node and
// other hosts to pods of other nodes.
func TestClientsAreRememberedThoughACNIMasquerades(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, here *town) {
		servers := []*pod{here.far}
		for i := range 5 {
			servers = append(servers, here.addServer(here.nodes[1], fmt.Sprintf("far-%d", i)))
		}
		here.apply(service(web.withEverything, affinity(anHour)).Merge(endpoints(servers...)))
		everywhere := web.paths(here.nodes[0], allKinds...)
		for _, client := range here.clients() {
			for name, to := range byNetwork(everywhere) {
				sticksTo(t, name, client, to)
			}
		}
	})
}

// TestUnallocatedAddressesAreDroppedThoughACNIMasquerades checks this where a CNI masquerades packets of pods to
// addresses outside the pod ranges.
func TestUnallocatedAddressesAreDroppedThoughACNIMasquerades(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, here *town) {
		here.machineWith("elsewhere", unallocated...)
		clients, to := slices.Concat(here.pod, here.node), pathsTo(servicePort, unallocated...)
		expect(t, "no ServiceCIDR: the CNI masquerades", clients, to, seenAs(here.node[0]))
		here.apply(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6))
		expect(t, "the ServiceCIDR exists", clients, to, timesOut)
	})
}

// TestNoPriorityOfOursRemainsThoughACNIMasquerades checks that packets leave without our priorities.
func TestNoPriorityOfOursRemainsThoughACNIMasquerades(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, here *town) {
		node := here.nodes[0]
		runNFT(t, node, counters, "-f", "-")
		here.apply(service(web.withEverything).Merge(endpoints(here.far)))
		expect(t, "an endpoint on another node", here.clients(), web.paths(node, allKinds...), servedBy("far"))
		if got := packets(t, node, "ours"); got != "0" {
			t.Errorf("%s packets left with one of our priorities", got)
		}
		if packets(t, node, "any") == "0" {
			t.Error("no packet left, so nothing was tested")
		}
	})
}
