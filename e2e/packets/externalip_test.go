package packets_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// olderApp and youngerApp are Services that may request the same address.
var olderApp, youngerApp = app{"z-elder", 31}, app{"a-younger", 32}

// createdIn sets the creation time of a Service: the oldest one wins, whatever the names are.
func createdIn(year int) func(*model.Service) {
	return func(s *model.Service) { s.Created = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
}

// TestTheOlderOfTwoServicesOwnsASharedAddress checks this on every node and after every restart, until the older
// Service releases the address.
func TestTheOlderOfTwoServicesOwnsASharedAddress(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]func(*model.Service){
		"an external IP":      web.withExternalIPs,
		"a load-balancer IP":  web.withLoadBalancer,
		"a node port":         web.withNodePorts,
		"an address and port": web.withEverything,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2)
			old, young := c.addServer(c.nodes[0], "old"), c.addServer(c.nodes[1], "young")
			c.apply(youngerApp.service(share, createdIn(2002)).Merge(youngerApp.endpoints(young)))
			expectOnEveryNode(t, c, share, "only the younger one exists", "young")
			c.apply(olderApp.service(share, createdIn(2001)).Merge(olderApp.endpoints(old)))
			expectOnEveryNode(t, c, share, "the older one was added later", "old")
			for _, n := range c.nodes {
				c.restart(n)
				c.sync(n)
			}
			expectOnEveryNode(t, c, share, "after a restart", "old")
			c.apply(youngerApp.service(share, createdIn(2002), affinity(affinityHour)))
			expectOnEveryNode(t, c, share, "the younger one changed", "old")
			c.apply(olderApp.service(createdIn(2001)))
			expectOnEveryNode(t, c, share, "the older one released the address", "young")
			c.apply(olderApp.service(share, createdIn(2001)))
			expectOnEveryNode(t, c, share, "the older one requests the address again", "old")
			c.apply(olderApp.deletion())
			expectOnEveryNode(t, c, share, "the older one was deleted", "young")
		})
	}
}

// expectOnEveryNode dials every shared frontend on each node.
func expectOnEveryNode(t *testing.T, c *cluster, share func(*model.Service), desc, want string) {
	t.Helper()
	probe := &model.Service{Ports: []model.ServicePort{{}}}
	share(probe)
	for _, n := range c.nodes {
		var shared []path
		if len(probe.ExternalIPs) > 0 {
			shared = append(shared, web.paths(n, model.ExternalIP)...)
		}
		if len(probe.LoadBalancerIPs) > 0 {
			shared = append(shared, web.paths(n, model.LoadBalancerIP)...)
		}
		if probe.Ports[0].NodePort != 0 {
			shared = append(shared, web.paths(n, model.NodePort)...)
		}
		expect(t, desc+", dialled on "+n.Name, []*fabric.Namespace{n.Namespace}, shared, servedBy(want))
	}
}

// TestAClusterIPIsNeverTakenByAnExternalIP holds for a Service of any age: the API server allocated the ClusterIP to
// one Service, while any user may write any external IP.
func TestAClusterIPIsNeverTakenByAnExternalIP(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	client := c.addPod(c.nodes[0], "client").Namespace
	other, owner := c.addServer(c.nodes[0], "other"), c.addServer(c.nodes[0], "owner")
	withClusterIPsOfWeb := func(s *model.Service) {
		s.ExternalIPs = append(s.ExternalIPs, web.addrs(model.ClusterIP)...)
		s.LoadBalancerIPs = append(s.LoadBalancerIPs, web.addrs(model.ClusterIP)...)
	}
	clients := []*fabric.Namespace{client, c.nodes[0].Namespace}
	c.apply(olderApp.service(withClusterIPsOfWeb, createdIn(2001)).Merge(olderApp.endpoints(other)))
	expect(t, "no Service has the ClusterIP yet", clients, paths, servedBy("other"))
	c.apply(service(createdIn(2002)).Merge(endpoints(owner)))
	expect(t, "a Service has the ClusterIP", clients, paths, servedBy("owner"))
	c.apply(endpoints())
	expect(t, "a Service without endpoints has the ClusterIP", clients, overNetworks(paths, "tcp"), refused)
}

// TestTheSameExternalIPOnOtherPorts has two Services that share an address without a conflict.
func TestTheSameExternalIPOnOtherPorts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	client, host := c.addPod(c.nodes[0], "client").Namespace, c.addHost("host", c.nodes[0])
	first, second := c.addServer(c.nodes[0], "first"), c.addServer(c.nodes[0], "second")
	other := app{"other", 11}
	onPort81 := func(s *model.Service) {
		for i := range s.Ports {
			s.Ports[i].Port = 81
		}
	}
	c.apply(service(web.withExternalIPs).Merge(endpoints(first)))
	c.apply(other.service(web.withExternalIPs, onPort81).Merge(other.endpoints(second)))
	clients := []*fabric.Namespace{client, c.nodes[0].Namespace, host}
	expect(t, "one port", clients, web.paths(c.nodes[0], model.ExternalIP), servedBy("first"))
	expect(t, "another port", clients, pathsTo(81, web.addrs(model.ExternalIP)...), servedBy("second"))
}

// TestExternalAddressesOfAFamilyWithoutAClusterIPAreIgnored checks the same behaviour as kube-proxy's.
func TestExternalAddressesOfAFamilyWithoutAClusterIPAreIgnored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	host := []*fabric.Namespace{c.addHost("host", c.nodes[0])}
	onlyIPv4 := func(s *model.Service) { s.ClusterIPs = []netip.Addr{web.addr(model.ClusterIP, model.IPv4)} }
	c.apply(service(web.withEverything, onlyIPv4).Merge(endpoints(c.addServer(c.nodes[0], "server"))))
	for _, kind := range externalKinds {
		to := web.paths(c.nodes[0], kind)
		expect(t, kind.String()+" of the ClusterIP's family", host, to[:3], servedBy("server"))
		expect(t, kind.String()+" of the other family", host, to[3:], notServed)
	}
}

// onNodePorts sets the external IPs of a Service to the addresses of a node, with the number of another Service's node
// port.
func onNodePorts(owner app, n *node) func(*model.Service) {
	return func(s *model.Service) {
		s.ExternalIPs = []netip.Addr{n.IPv4, n.IPv6}
		for i := range s.Ports {
			s.Ports[i].Port = owner.nodePort()
		}
	}
}

// onLoadBalancer sets the external IPs of a Service to the load balancer addresses of another Service.
func onLoadBalancer(owner app) func(*model.Service) {
	return func(s *model.Service) { s.ExternalIPs = owner.addrs(model.LoadBalancerIP) }
}

// TestAnOlderExternalIPOverridesNoLoadBalancerIPOrNodePort checks that an older external IP overrides neither the load
// balancer address of another Service nor its node port on an address of the node. It gets them once the other Service
// releases them.
func TestAnOlderExternalIPOverridesNoLoadBalancerIPOrNodePort(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	n := c.nodes[0]
	other, owner := c.addServer(n, "other"), c.addServer(n, "owner")
	clients := []*fabric.Namespace{c.addPod(n, "client").Namespace, n.Namespace, c.addHost("host", n)}
	c.apply(olderApp.endpoints(other).Merge(youngerApp.endpoints(owner)))
	for name, test := range map[string]struct {
		owned, stolen func(*model.Service)
		to            []path
	}{
		"a load balancer IP": {youngerApp.withLoadBalancer, onLoadBalancer(youngerApp), youngerApp.paths(n, model.LoadBalancerIP)},
		"a node port":        {youngerApp.withNodePorts, onNodePorts(youngerApp, n), youngerApp.paths(n, model.NodePort)},
	} {
		c.apply(olderApp.service(createdIn(2001), test.stolen).Merge(youngerApp.deletion()))
		expect(t, name+": no other Service requests it", clients, test.to, servedBy("other"))
		c.apply(youngerApp.service(createdIn(2002), test.owned))
		expect(t, name+": another Service gets it", clients, test.to, servedBy("owner"))
		c.restart(n)
		c.sync(n)
		expect(t, name+": after a restart", clients, test.to, servedBy("owner"))
		c.apply(olderApp.service(createdIn(2001), test.stolen, affinity(affinityHour)))
		expect(t, name+": the older Service changes", clients, test.to, servedBy("owner"))
		c.apply(youngerApp.service(createdIn(2002)))
		expect(t, name+": the other Service releases it", clients, test.to, servedBy("other"))
		c.apply(olderApp.deletion())
	}
}
