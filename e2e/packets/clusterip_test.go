package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// unallocated are addresses in the ServiceCIDRs that no Service has.
var unallocated = []netip.Addr{netip.MustParseAddr("10.96.7.7"), netip.MustParseAddr("fd00:96::77")}

// newUnallocated returns a cluster in which another machine has the unallocated addresses, to detect whether packets to
// them leave the node.
func newUnallocated(t *testing.T) (*cluster, []*fabric.Namespace) {
	t.Helper()
	c := newCluster(t, 1)
	client, host := c.addPod(c.nodes[0], "client").Namespace, c.addHost("host", c.nodes[0])
	elsewhere := c.machineWith("elsewhere", unallocated...)
	for _, addr := range []netip.Addr{host.IPv4, host.IPv6} {
		if err := elsewhere.RouteVia(single(addr), c.nodes[0].Namespace); err != nil {
			t.Fatal(err)
		}
	}
	return c, []*fabric.Namespace{client, c.nodes[0].Namespace, host}
}

// TestAnUnallocatedAddressOfAServiceCIDRIsDropped checks that packets are dropped as soon as the ServiceCIDR exists,
// and no longer when it is deleted.
func TestAnUnallocatedAddressOfAServiceCIDRIsDropped(t *testing.T) {
	t.Parallel()
	c, clients := newUnallocated(t)
	to := pathsTo(servicePort, unallocated...)
	c.apply(service().Merge(endpoints(c.addServer(c.nodes[0], "server"))))
	expect(t, "no ServiceCIDR", clients, to, servedBy("elsewhere"))
	open := openConnections(t, clients, overNetworks(to, "tcp", "sctp"))

	c.apply(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6))
	expect(t, "the ServiceCIDR exists", clients, to, timesOut)
	expect(t, "a ClusterIP inside the ServiceCIDR", clients, paths, servedBy("server"))
	expectContinues(t, "the ServiceCIDR exists", open)
	c.apply(web.deletion())
	expect(t, "a ClusterIP whose Service was deleted", clients, paths, timesOut)

	c.apply(serviceCIDR(fabric.ClusterIPv4))
	expect(t, "the IPv6 range was removed from the ServiceCIDR", clients, to[3:], servedBy("elsewhere"))
	expect(t, "the IPv6 range was removed from the ServiceCIDR", clients, to[:3], timesOut)
	c.apply(serviceCIDR())
	expect(t, "the ServiceCIDR was deleted", clients, to, servedBy("elsewhere"))
}

// serviceCIDR returns the change that sets the ranges of the ServiceCIDR; without prefixes it deletes the ServiceCIDR.
func serviceCIDR(prefixes ...netip.Prefix) model.Change {
	return model.Change{ServiceCIDRs: map[string][]netip.Prefix{"kubernetes": prefixes}}
}

// foreignProxy translates an unallocated address, as a proxy for Services with the label
// service.kubernetes.io/service-proxy-name does.
const foreignProxy = `
table ip foreign {
	chain prerouting { type nat hook prerouting priority -90; ip daddr 10.96.7.7 tcp dport 80 dnat to 10.244.1.1:8080; }
	chain output { type nat hook output priority -90; ip daddr 10.96.7.7 tcp dport 80 dnat to 10.244.1.1:8080; }
}
table ip6 foreign {
	chain prerouting { type nat hook prerouting priority -90; ip6 daddr fd00:96::77 tcp dport 80 dnat to [fd00:244:1::1]:8080; }
	chain output { type nat hook output priority -90; ip6 daddr fd00:96::77 tcp dport 80 dnat to [fd00:244:1::1]:8080; }
}
`

// TestAnotherProxysServicesKeepWorking checks that Services of another proxy keep working. Their addresses are in the
// ServiceCIDR, and unallocated for this proxy.
func TestAnotherProxysServicesKeepWorking(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	server := c.addServer(c.nodes[0], "server")
	if server.IPv4.String() != "10.244.1.1" || server.IPv6.String() != "fd00:244:1::1" {
		t.Fatalf("the server has the addresses %s and %s", server.IPv4, server.IPv6)
	}
	client := c.addPod(c.nodes[0], "client").Namespace
	c.apply(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6))
	clients, to := []*fabric.Namespace{client, c.nodes[0].Namespace}, overNetworks(pathsTo(servicePort, unallocated...), "tcp")
	expect(t, "no proxy translates the address", clients, to, timesOut)
	runNFT(t, c.nodes[0], foreignProxy, "-f", "-")
	expect(t, "another proxy translates the address", clients, to, servedBy("server"))
}

// TestAClusterIPAssignedToTheNode covers a ClusterIP on an interface of the node, as some DNS caches need it.
// Packets to a port that the Service does not define go to the node's own sockets, from any client.
func TestAClusterIPAssignedToTheNode(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	r.addAddrs(r.nodes[0], web.addrs(model.ClusterIP)...)
	r.reportAddrs(r.nodes[0])
	r.serveOn(r.node, 81, web.addrs(model.ClusterIP)...)
	r.apply(service().Merge(endpoints(r.near)))
	expect(t, "the Service's own port", r.clients(), paths, servedBy("near"))
	expect(t, "a port that the Service does not define", r.clients(), pathsTo(81, web.addrs(model.ClusterIP)...), servedBy(r.node.Name))
	r.apply(serviceCIDR(fabric.ClusterIPv4, fabric.ClusterIPv6))
	expect(t, "inside a ServiceCIDR", r.clients(), pathsTo(81, web.addrs(model.ClusterIP)...), servedBy(r.node.Name))
}

// TestAClusterIPAssignedToTheNodeDoesNotBypassItsService checks that packets to a port of the Service are dropped or
// refused as on any other ClusterIP, although a socket of the node would respond.
func TestAClusterIPAssignedToTheNodeDoesNotBypassItsService(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	r.addAddrs(r.nodes[0], web.addrs(model.ClusterIP)...)
	r.reportAddrs(r.nodes[0])
	r.serveOn(r.node, servicePort, web.addrs(model.ClusterIP)...)
	expect(t, "no Service", r.clients(), paths, servedBy(r.node.Name))
	r.apply(service(internalLocal).Merge(endpoints(r.far)))
	expect(t, "internalTrafficPolicy Local, endpoints only on other nodes", r.clients(), paths, timesOut)
	r.apply(endpoints())
	expect(t, "internalTrafficPolicy Local, no endpoint", r.clients(), paths, refused)
	r.apply(service())
	expect(t, "no endpoint", r.clients(), paths, refused)
	r.apply(endpoints(r.near))
	expect(t, "an endpoint", r.clients(), paths, servedBy("near"))
}
