package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// inHostNetwork makes a node serve like a pod: an endpoint in its host network has the node's own address.
func (c *cluster) inHostNetwork(n *node) *pod {
	c.t.Helper()
	c.serveOn(n.Namespace, podPort, n.IPv4, n.IPv6)
	return &pod{Pod: &fabric.Pod{Namespace: n.Namespace, Node: n.Node}, zone: "zone-of-" + n.Name}
}

// TestAnEndpointInTheHostNetworkOfThisNode is reached over every frontend. Packets from other clients are not forwarded
// to it, so the reply returns without masquerading.
func TestAnEndpointInTheHostNetworkOfThisNode(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	node := here.nodes[0]
	here.apply(endpoints(here.inHostNetwork(node)))
	everywhere := web.paths(node, allKinds...)
	for why, change := range map[string]model.Change{
		"both policies Cluster": service(web.withEverything),
		"both policies Local":   service(web.withEverything, internalLocal, externalLocal),
		"session affinity":      service(web.withEverything, affinity(anHour)),
	} {
		here.apply(change)
		for range 2 { // the second connection uses the affinity entry, if any
			expect(t, why, here.clients(), everywhere, servedBy(node.Name))
			expect(t, why, here.pod, everywhere, seenAs(here.pod[0]))
			expect(t, why, here.host, everywhere, seenAs(here.host[0]))
		}
	}
}

// TestAnEndpointInTheHostNetworkOfAnotherNode is reached over every frontend by clients that may use endpoints on other
// nodes.
func TestAnEndpointInTheHostNetworkOfAnotherNode(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	here.apply(endpoints(here.inHostNetwork(here.nodes[1])))
	clusterIPs, there := web.paths(here.nodes[0], model.ClusterIP), servedBy(here.nodes[1].Name)
	for why, edit := range map[string]func(*model.Service){
		"no session affinity": func(*model.Service) {},
		"session affinity":    affinity(anHour),
	} {
		here.apply(service(web.withEverything, edit))
		for range 2 {
			expect(t, why, here.clients(), append(clusterIPs, here.external...), there)
			expect(t, why+": a pod keeps its source", here.pod, clusterIPs, seenAs(here.pod[0]))
			expect(t, why+": other clients do not", here.host, clusterIPs, seenAs(here.node[0]))
			expect(t, why+": other clients do not", append(here.pod, here.host...), here.external, seenAs(here.node[0]))
		}
	}
	here.apply(service(web.withEverything, externalLocal))
	expect(t, "externalTrafficPolicy Local: the short circuit", append(here.pod, here.node...), here.external, there)
	expect(t, "externalTrafficPolicy Local: outside", here.host, here.external, timesOut)
	here.apply(service(web.withEverything, internalLocal))
	expect(t, "internalTrafficPolicy Local", here.clients(), clusterIPs, timesOut)
}

// TestAClientKeepsAnEndpointInAHostNetwork covers this node and another node. Connections to an endpoint on this node
// pass input and never postrouting, where the affinity of all other clients is recorded.
func TestAClientKeepsAnEndpointInAHostNetwork(t *testing.T) {
	t.Parallel()
	for number, whose := range []string{"this node", "another node"} {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			here := newTown(t, setup{config: clusterCIDR()})
			endpoint, everywhere := here.inHostNetwork(here.nodes[number]), web.paths(here.nodes[0], allKinds...)
			here.apply(service(web.withEverything, affinity(anHour)).Merge(endpoints(endpoint)))
			expect(t, "the only endpoint", here.clients(), everywhere, servedBy(endpoint.Name))
			here.apply(endpoints(endpoint, here.near, here.far))
			for range 3 {
				expect(t, "others were added", here.clients(), everywhere, servedBy(endpoint.Name))
			}
			here.apply(endpoints(here.near, here.far))
			for _, client := range here.clients() {
				for name, to := range byNetwork(everywhere) {
					if got := sticksTo(t, "it was removed: "+name, client, to); got == endpoint.Name {
						t.Errorf("%s from %s: %s still replies, but is not an endpoint any more", name, client.Name, got)
					}
				}
			}
		})
	}
}
