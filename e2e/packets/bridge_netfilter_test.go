package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// bridgedCounter counts forwarded packets that pass postrouting without an input interface, as they do with
// br_netfilter.
const bridgedCounter = `
table inet witness {
	chain leaving {
		type filter hook postrouting priority 300; policy accept;
		iif 0 fib saddr type != local counter comment "bridged"
	}
}
`

// withBridgeNetfilter runs a test with each local traffic detector that recognizes pods by their bridge. On the first
// node, packets already pass netfilter on the bridge, as on most nodes with a bridge. The test needs br_netfilter.
func withBridgeNetfilter(t *testing.T, test func(*testing.T, *twoNodes)) {
	t.Helper()
	for name, traffic := range map[string]ruleset.LocalTraffic{
		"BridgeInterface":     {Interface: fabric.PodBridge},
		"InterfaceNamePrefix": {InterfacePrefix: "cbr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := clusterCIDR()
			config.LocalTraffic = traffic
			c := newTwoNodes(t, setup{config: config, bridged: true})
			node := c.nodes[0]
			for _, sysctl := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
				if err := node.SetSysctl(sysctl, "1"); err != nil {
					t.Fatalf("enable br_netfilter (the test needs it): %v", err)
				}
			}
			runNFT(t, node, bridgedCounter, "-f", "-")
			test(t, c)
			if counterPackets(t, node, "bridged") == "0" {
				t.Error("no packet passed postrouting over the bridge, so nothing was tested")
			}
		})
	}
}

// TestPodsOnOneBridgeAreNotMasqueraded covers nodes on which br_netfilter hides the bridge from postrouting. All other
// clients are masqueraded: the node, whose packets have no input interface, and hosts.
func TestPodsOnOneBridgeAreNotMasqueraded(t *testing.T) {
	t.Parallel()
	withBridgeNetfilter(t, func(t *testing.T, c *twoNodes) {
		node, second := c.nodes[0], c.addServer(c.nodes[0], "second")
		c.apply(service().Merge(endpoints(c.near, second)))
		expect(t, "a pod, both endpoints on its bridge", c.pod, paths, all.expectation(node, c.near, second))
		expect(t, "the node", c.node, paths, allMasq.expectation(node, c.near, second))
		expect(t, "a host", c.host, paths, allMasq.expectation(node, c.near, second))
		c.apply(endpoints(c.near, c.far))
		expect(t, "a pod, one endpoint on its bridge", c.pod, paths, all.expectation(node, c.near, c.far))
	})
}

// TestAPodKeepsAnEndpointOnItsBridge covers nodes on which br_netfilter hides the bridge from postrouting. The affinity
// entry must be for the pod as a client and, under externalTrafficPolicy Local, not for an external client.
func TestAPodKeepsAnEndpointOnItsBridge(t *testing.T) {
	t.Parallel()
	withBridgeNetfilter(t, func(t *testing.T, c *twoNodes) {
		servers := []*pod{c.near}
		for _, name := range []string{"second", "third", "fourth"} {
			servers = append(servers, c.addServer(c.nodes[0], name))
		}
		c.apply(service(web.withEverything, externalLocal, affinity(affinityHour)).Merge(endpoints(servers...)))
		for _, client := range c.clients() {
			for name, to := range byNetwork(c.external) {
				expectOneServerOnAll(t, "externalTrafficPolicy Local: "+name, client, to)
			}
		}
	})
}
