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

// TestAnEndpointInTheHostNetworkOfThisNode checks that such an endpoint is reached over every frontend. Packets from
// other clients are not forwarded to it, so the reply returns without masquerading.
func TestAnEndpointInTheHostNetworkOfThisNode(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	node := c.nodes[0]
	c.apply(endpoints(c.inHostNetwork(node)))
	allPaths := web.paths(node, allKinds...)
	for desc, change := range map[string]model.Change{
		"both policies Cluster": service(web.withEverything),
		"both policies Local":   service(web.withEverything, internalLocal, externalLocal),
		"session affinity":      service(web.withEverything, affinity(affinityHour)),
	} {
		c.apply(change)
		for range 2 { // the second connection uses the affinity entry, if any
			expect(t, desc, c.clients(), allPaths, servedBy(node.Name))
			expect(t, desc, c.pod, allPaths, seenAs(c.pod[0]))
			expect(t, desc, c.host, allPaths, seenAs(c.host[0]))
		}
	}
}

// TestAnEndpointInTheHostNetworkOfAnotherNode checks that such an endpoint is reached over every frontend by clients
// that may use endpoints on other nodes.
func TestAnEndpointInTheHostNetworkOfAnotherNode(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	c.apply(endpoints(c.inHostNetwork(c.nodes[1])))
	clusterIPs, there := web.paths(c.nodes[0], model.ClusterIP), servedBy(c.nodes[1].Name)
	for desc, edit := range map[string]func(*model.Service){
		"no session affinity": func(*model.Service) {},
		"session affinity":    affinity(affinityHour),
	} {
		c.apply(service(web.withEverything, edit))
		for range 2 {
			expect(t, desc, c.clients(), append(clusterIPs, c.external...), there)
			expect(t, desc+": a pod keeps its source", c.pod, clusterIPs, seenAs(c.pod[0]))
			expect(t, desc+": other clients do not", c.host, clusterIPs, seenAs(c.node[0]))
			expect(t, desc+": other clients do not", append(c.pod, c.host...), c.external, seenAs(c.node[0]))
		}
	}
	c.apply(service(web.withEverything, externalLocal))
	expect(t, "externalTrafficPolicy Local: the short circuit", append(c.pod, c.node...), c.external, there)
	expect(t, "externalTrafficPolicy Local: outside", c.host, c.external, timesOut)
	c.apply(service(web.withEverything, internalLocal))
	expect(t, "internalTrafficPolicy Local", c.clients(), clusterIPs, timesOut)
}

// TestAClientKeepsAnEndpointInAHostNetwork covers this node and another node. Connections to an endpoint on this node
// pass input and never postrouting, where the affinity of all other clients is recorded.
func TestAClientKeepsAnEndpointInAHostNetwork(t *testing.T) {
	t.Parallel()
	for number, whose := range []string{"this node", "another node"} {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			c := newTwoNodes(t, setup{config: clusterCIDR()})
			endpoint, allPaths := c.inHostNetwork(c.nodes[number]), web.paths(c.nodes[0], allKinds...)
			c.apply(service(web.withEverything, affinity(affinityHour)).Merge(endpoints(endpoint)))
			expect(t, "the only endpoint", c.clients(), allPaths, servedBy(endpoint.Name))
			c.apply(endpoints(endpoint, c.near, c.far))
			for range 3 {
				expect(t, "others were added", c.clients(), allPaths, servedBy(endpoint.Name))
			}
			c.apply(endpoints(c.near, c.far))
			for _, client := range c.clients() {
				for name, to := range byNetwork(allPaths) {
					if got := expectOneServerOnAll(t, "it was removed: "+name, client, to); got == endpoint.Name {
						t.Errorf("%s from %s: %s still replies, but is not an endpoint any more", name, client.Name, got)
					}
				}
			}
		})
	}
}
