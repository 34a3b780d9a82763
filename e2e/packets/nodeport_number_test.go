package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestAFrontendWithTheNumberOfANodePort covers the keys of node ports, which have no address. The tables must not
// confuse other frontends of that port number with the node port wherever they look it up: for the endpoint, for
// affinity, and for masquerading.
func TestAFrontendWithTheNumberOfANodePort(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]model.NodePortAddresses{
		"on the node's own addresses": {Primary: true},
		"on all addresses":            {},
	} {
		t.Run(name, func(t *testing.T) {
			config := clusterCIDR()
			config.NodePorts = addresses
			c := newTwoNodes(t, setup{config: config})
			samePort := app{"same-port", 11}
			onThatPort := func(s *model.Service) {
				for i := range s.Ports {
					s.Ports[i].Port = web.nodePort()
				}
			}
			c.apply(web.service(web.withNodePorts, affinity(affinityHour)).Merge(web.endpoints(c.near)))
			c.apply(samePort.service(samePort.withExternalIPs, samePort.withLoadBalancer, onThatPort).
				Merge(samePort.endpoints(c.far)))
			var external []path
			for _, kind := range []model.FrontendKind{model.ExternalIP, model.LoadBalancerIP} {
				external = append(external, pathsTo(web.nodePort(), samePort.addrs(kind)...)...)
			}
			internal := pathsTo(web.nodePort(), samePort.addrs(model.ClusterIP)...)
			for range 2 {
				for _, clients := range [][]*fabric.Namespace{c.pod, c.node, c.host} {
					expect(t, "the other Service's ClusterIP", clients, internal, servedBy("far"))
					expect(t, "the other Service's external addresses", clients, external, servedBy("far"))
					expect(t, "the node port", clients, web.paths(c.nodes[0], model.NodePort), servedBy("near"))
				}
			}
			expect(t, "a pod dials the other Service's ClusterIP", c.pod, internal, seenAs(c.pod[0]))
			c.apply(samePort.service(samePort.withExternalIPs, samePort.withLoadBalancer, onThatPort, externalLocal))
			expect(t, "a pod's short circuit to the other Service", c.pod, external, seenAs(c.pod[0]))
			c.apply(samePort.endpoints())
			expect(t, "the other Service has no endpoint", c.host, overNetworks(internal, "tcp"), refused)
			expect(t, "the node port", c.host, web.paths(c.nodes[0], model.NodePort), servedBy("near"))
		})
	}
}

// TestAnExternalIPThatIsTheNodesOwnAddressDoesNotAffectANodePort covers a node port with the same number, and its
// clients with affinity.
func TestAnExternalIPThatIsTheNodesOwnAddressDoesNotAffectANodePort(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	node := c.nodes[0]
	exact := app{"exact", 11}
	onTheNode := func(s *model.Service) {
		s.ExternalIPs = append(s.ExternalIPs, node.IPv4, node.IPv6)
		for i := range s.Ports {
			s.Ports[i].Port = web.nodePort()
		}
	}
	to := web.paths(node, model.NodePort)
	clients := append(append(c.pod, c.node...), c.host...)
	c.apply(service(web.withNodePorts, affinity(affinityHour)).Merge(endpoints(c.near)))
	expect(t, "a node port", clients, to, servedBy("near"))
	c.apply(exact.service(onTheNode).Merge(exact.endpoints(c.far)))
	for range 2 {
		expect(t, "an external IP on the same address and port", clients, to, servedBy("near"))
	}
	c.apply(web.deletion())
	expect(t, "the node port was removed", clients, to, servedBy("far"))
	c.apply(service(web.withNodePorts, affinity(affinityHour)))
	expect(t, "the node port was added again", clients, to, servedBy("near"))
}
