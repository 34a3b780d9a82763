package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestTheSourceAddressThatServersSee checks the client address that the server sees. A pod's connection to a ClusterIP keeps its
// source. The connection of any other client comes from the node that translated it, so that replies pass that node.
func TestTheSourceAddressThatServersSee(t *testing.T) {
	c := newCluster(t, 2)
	server := c.addServer(c.nodes[1], "server")
	client := c.addPod(c.nodes[0], "client")
	host, err := c.fabric.AddHost("outside", c.nodes[0].Node) // other machines have no route back through the node
	if err != nil {
		t.Fatal(err)
	}
	c.apply(service().Merge(endpoints(server)))
	for _, to := range paths {
		for _, test := range []struct {
			from *fabric.Namespace
			want netip.Addr
		}{
			{client.Namespace, to.clientAddr(client.Namespace)},
			{c.nodes[0].Namespace, to.clientAddr(c.nodes[0].Namespace)},
			{host.Namespace, to.clientAddr(c.nodes[0].Namespace)},
		} {
			if got := mustRequest(t, test.from, to).Client.Addr(); got != test.want {
				t.Errorf("%s from %s: the server sees %s, want %s", to, test.from.Name, got, test.want)
			}
		}
	}
}

// TestAnEndpointThatIsDialledItselfSeesItsClient covers an external IP that is the address of the endpoint, as where
// pods with hostNetwork serve on the addresses of their nodes. Nothing is translated or masqueraded then.
func TestAnEndpointThatIsDialledItselfSeesItsClient(t *testing.T) {
	c := newCluster(t, 2)
	server, client := c.addServer(c.nodes[1], "server"), c.addPod(c.nodes[0], "client")
	podAddrs := []netip.Addr{server.IPv4, server.IPv6}
	c.apply(service(func(s *model.Service) {
		s.ExternalIPs = podAddrs
		for i := range s.Ports {
			s.Ports[i].Port = podPort
		}
	}).Merge(endpoints(server)))
	clients := []*fabric.Namespace{client.Namespace, c.nodes[0].Namespace}
	expect(t, "the endpoint's own address", clients, pathsTo(podPort, podAddrs...), sourceKept)
	expect(t, "the ClusterIP", clients, pathsTo(podPort, web.addrs(model.ClusterIP)...), servedBy("server"))
}

// TestAFamilyWithoutAPrefixHasNoDetector checks a local traffic detector with a prefix in one family only.
func TestAFamilyWithoutAPrefixHasNoDetector(t *testing.T) {
	config := clusterCIDR()
	config.LocalTraffic.Prefixes = []netip.Prefix{fabric.PodsIPv4}
	c := setUp(t, setup{nodes: 2, config: config})
	node := c.nodes[0]
	near, far := c.addServer(node, "near"), c.addServer(c.nodes[1], "far")
	host := []*fabric.Namespace{c.addHost("host", node)}
	c.apply(service().Merge(endpoints(near, far)))
	expect(t, "the family that has a prefix", host, paths[:3], allMasq.expectation(node, near, far))
	expect(t, "the family that has none", host, paths[3:], all.expectation(node, near, far))
}
