package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// clientRanges sets source ranges that contain single clients.
func clientRanges(clients ...*fabric.Namespace) func(*model.Service) {
	return func(s *model.Service) {
		for _, client := range clients {
			s.SourceRanges = append(s.SourceRanges, single(client.IPv4), single(client.IPv6))
		}
	}
}

// TestSourceRangesRestrictWhoMayDialALoadBalancerIP checks that source ranges apply to pods and the node like to all
// other clients, and not to other frontends.
func TestSourceRangesRestrictWhoMayDialALoadBalancerIP(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	otherHost := r.addHost("stranger", r.nodes[0])
	balancer := web.paths(r.nodes[0], model.LoadBalancerIP)
	otherPaths := web.paths(r.nodes[0], model.ClusterIP, model.NodePort, model.ExternalIP)
	for _, test := range []struct {
		desc            string
		edit            func(*model.Service)
		allowed, barred []*fabric.Namespace
	}{
		{"no range", func(*model.Service) {}, []*fabric.Namespace{r.pod, r.node, r.host, otherHost}, nil},
		{"the host", clientRanges(r.host), []*fabric.Namespace{r.host}, []*fabric.Namespace{r.pod, r.node, otherHost}},
		{"the pod", clientRanges(r.pod), []*fabric.Namespace{r.pod}, []*fabric.Namespace{r.host, r.node, otherHost}},
		{"the node", clientRanges(r.node), []*fabric.Namespace{r.node}, []*fabric.Namespace{r.pod, r.host, otherHost}},
		{"the pod and the node", clientRanges(r.pod, r.node), []*fabric.Namespace{r.pod, r.node}, []*fabric.Namespace{r.host, otherHost}},
		{"all pods, and some of the machines", sourceRanges("10.244.0.0/16", "172.30.0.0/25", "fd00:244::/32", "fd00:30::/121"),
			[]*fabric.Namespace{r.pod, r.node}, []*fabric.Namespace{r.host, otherHost}},
		{"all addresses, in two halves", sourceRanges("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"),
			[]*fabric.Namespace{r.pod, r.node, r.host, otherHost}, nil},
		{"no client here", sourceRanges("192.0.2.0/24", "2001:db8:ffff::/48"), nil, []*fabric.Namespace{r.pod, r.node, r.host, otherHost}},
	} {
		r.apply(service(web.withEverything, test.edit).Merge(endpoints(r.near)))
		expect(t, "in the ranges: "+test.desc, test.allowed, balancer, servedBy("near"))
		expect(t, "not in the ranges: "+test.desc, test.barred, balancer, timesOut)
		expect(t, "other frontends; ranges: "+test.desc, []*fabric.Namespace{r.pod, r.node, r.host, otherHost}, otherPaths, servedBy("near"))
	}
}

// TestSourceRangesDropBeforeAnythingElse checks that clients outside the ranges cannot detect whether there are
// endpoints.
func TestSourceRangesDropBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	balancer := web.paths(r.nodes[0], model.LoadBalancerIP)
	r.apply(service(web.withEverything, clientRanges(r.host)))
	expect(t, "not in the ranges, no endpoint", []*fabric.Namespace{r.pod, r.node}, balancer, timesOut)
	expect(t, "in the ranges, no endpoint", []*fabric.Namespace{r.host}, balancer, refused)
	r.apply(service(web.withEverything, clientRanges(r.host), externalLocal).Merge(endpoints(r.far)))
	expect(t, "not in the ranges, a pod's short circuit", []*fabric.Namespace{r.pod, r.node}, balancer, timesOut)
	expect(t, "in the ranges, endpoints only on other nodes", []*fabric.Namespace{r.host}, balancer, timesOut)
	r.apply(service(web.withEverything, clientRanges(r.host), affinity(affinityHour)).Merge(endpoints(r.near)))
	expect(t, "in the ranges, with session affinity", []*fabric.Namespace{r.host}, balancer, servedBy("near"))
	r.apply(service(web.withEverything, clientRanges(r.pod), affinity(affinityHour)))
	expect(t, "with affinity, but not in the ranges any more", []*fabric.Namespace{r.host}, balancer, timesOut)
}

// TestSourceRangesOfOneFamilyDoNotRestrictTheOther checks the same behaviour as kube-proxy's.
func TestSourceRangesOfOneFamilyDoNotRestrictTheOther(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	balancer := web.paths(r.nodes[0], model.LoadBalancerIP)
	r.apply(service(web.withEverything, sourceRanges("192.0.2.0/24")).Merge(endpoints(r.near)))
	expect(t, "IPv4, which has a range", r.clients(), balancer[:3], timesOut)
	expect(t, "IPv6, which has none", r.clients(), balancer[3:], servedBy("near"))
}

// TestSourceRangesConcernTheirOwnPortsOnly checks that another Service on the same address, with its own port, is open.
func TestSourceRangesConcernTheirOwnPortsOnly(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	other := app{"other", 11}
	sameAddress := func(s *model.Service) {
		s.LoadBalancerIPs = web.addrs(model.LoadBalancerIP)
		for i := range s.Ports {
			s.Ports[i].Port = 81
		}
	}
	r.apply(service(web.withEverything, clientRanges(r.host)).Merge(endpoints(r.near)))
	r.apply(other.service(sameAddress).Merge(other.endpoints(r.far)))
	balancer := web.paths(r.nodes[0], model.LoadBalancerIP)
	expect(t, "the port with ranges", []*fabric.Namespace{r.pod}, balancer, timesOut)
	expect(t, "the other Service's port", r.clients(), pathsTo(81, web.addrs(model.LoadBalancerIP)...), servedBy("far"))
}

// TestAnExternalIPThatIsALoadBalancerIPTooIsFiltered checks that the source ranges apply to the address.
func TestAnExternalIPThatIsALoadBalancerIPTooIsFiltered(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	both := func(s *model.Service) { s.ExternalIPs = s.LoadBalancerIPs }
	r.apply(service(web.withLoadBalancer, both, clientRanges(r.host)).Merge(endpoints(r.near)))
	balancer := web.paths(r.nodes[0], model.LoadBalancerIP)
	expect(t, "in the ranges", []*fabric.Namespace{r.host}, balancer, servedBy("near"))
	expect(t, "not in the ranges", []*fabric.Namespace{r.pod, r.node}, balancer, timesOut)
}

// TestANodeInTheRangesMaySendFromTheLoadBalancerIP covers packets of a node to an address of its own, which have that
// address as their source.
func TestANodeInTheRangesMaySendFromTheLoadBalancerIP(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	r.addAddrs(r.nodes[0], web.addrs(model.LoadBalancerIP)...)
	r.reportAddrs(r.nodes[0])
	balancer, node := web.paths(r.nodes[0], model.LoadBalancerIP), []*fabric.Namespace{r.node}
	r.apply(service(web.withEverything, clientRanges(r.host)).Merge(endpoints(r.near)))
	expect(t, "the node is not in the ranges", node, balancer, timesOut)
	r.apply(service(web.withEverything, clientRanges(r.host, r.node)))
	expect(t, "the node is in the ranges", node, balancer, servedBy("near"))

	object := r.nodes[0].object()
	object.Addresses = nil
	r.apply(model.Change{Nodes: map[string]*model.Node{object.Name: object}})
	expect(t, "the Node object no longer has the address", node, balancer, timesOut)
	r.apply(model.Change{Nodes: map[string]*model.Node{object.Name: r.nodes[0].object()}})
	expect(t, "the Node object has the address again", node, balancer, servedBy("near"))
}

// TestPacketsToALoadBalancerIPNeverLeaveTheNode checks that packets of the node and of its pods are translated before
// they are routed.
func TestPacketsToALoadBalancerIPNeverLeaveTheNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	node := c.nodes[0]
	clients := []*fabric.Namespace{c.addPod(node, "client").Namespace, node.Namespace}
	c.apply(service(web.withEverything).Merge(endpoints(c.addServer(node, "server"))))
	runNFT(t, node, egressCounter, "-f", "-")
	expect(t, "a load-balancer IP", clients, web.paths(node, model.LoadBalancerIP), servedBy("server"))
	if got := counterPackets(t, node, "leaving"); got != "0" {
		t.Errorf("%s packets to the load-balancer IP left the node, want none", got)
	}
	for _, addr := range web.addrs(model.LoadBalancerIP) {
		if _, err := node.Request("tcp", netip.AddrPortFrom(addr.Next(), servicePort), immediateTimeout); err == nil {
			t.Errorf("%s belongs to no Service, but replies", addr.Next())
		}
	}
	if got := counterPackets(t, node, "leaving"); got == "0" {
		t.Error("no packet to another address of the load balancer left the node, so nothing was tested")
	}
}

// egressCounter counts packets to load balancers that leave by the uplink.
const egressCounter = `
table inet witness {
	chain leaving {
		type filter hook postrouting priority 300; policy accept;
		oifname eth0 ip daddr 198.51.100.0/24 counter comment "leaving"
		oifname eth0 ip6 daddr 2001:db8:0:b::/64 counter comment "leaving6"
	}
}
`
