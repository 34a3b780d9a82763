package packets_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// refusals is a cluster for tests of refused connections: two nodes with an endpoint each, and every kind of client.
type refusals struct {
	*cluster
	near, far *pod
	pod, host *fabric.Namespace
	node      *fabric.Namespace
}

// newRefusals lifts the kernel's limits on ICMP errors; by default the kernel sends at most six in a row to a receiver.
func newRefusals(t *testing.T) *refusals {
	t.Helper()
	c := newCluster(t, 2)
	r := &refusals{
		cluster: c, near: c.addServer(c.nodes[0], "near"), far: c.addServer(c.nodes[1], "far"),
		pod: c.addPod(c.nodes[0], "client").Namespace, host: c.addHost("host", c.nodes[0]), node: c.nodes[0].Namespace,
	}
	liftICMPLimits(t, r.node)
	resolveLinkAddrs(t, r.clients(), r.near, r.far)
	return r
}

// liftICMPLimits lifts the kernel's limits on ICMP errors: per receiver, and in total. Before Linux 6.11 the total
// limit is not per network namespace and stays.
func liftICMPLimits(t *testing.T, n *fabric.Namespace) {
	t.Helper()
	for name, value := range map[string]string{
		"net.ipv4.icmp_ratelimit": "0", "net.ipv6.icmp.ratelimit": "0",
		"net.ipv4.icmp_msgs_burst": "100000", "net.ipv4.icmp_msgs_per_sec": "100000",
	} {
		if err := n.SetSysctl(name, value); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func (r *refusals) clients() []*fabric.Namespace { return []*fabric.Namespace{r.pod, r.node, r.host} }

// resolveLinkAddrs makes clients and nodes resolve each other's link addresses in both families. Otherwise the first
// packet on a new link may be delayed.
func resolveLinkAddrs(t *testing.T, clients []*fabric.Namespace, servers ...*pod) {
	t.Helper()
	for _, client := range clients {
		for _, server := range servers {
			for _, addr := range []netip.Addr{server.IPv4, server.IPv6} {
				mustRequest(t, client, path{"tcp", netip.AddrPortFrom(addr, podPort)})
			}
		}
	}
}

// TestRefusalsDoNotRunOut covers the kernel's limit of six ICMP errors in a row for each receiver. A client that
// retries would time out beyond that. TCP is refused by resets, which have no limit.
func TestRefusalsDoNotRunOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	client, host := c.addPod(c.nodes[0], "client").Namespace, c.addHost("host", c.nodes[0])
	clients := []*fabric.Namespace{client, c.nodes[0].Namespace, host}
	resolveLinkAddrs(t, clients, c.addServer(c.nodes[0], "server"))
	c.apply(service(web.withEverything))
	for range 30 {
		expect(t, "repeated thirty times", clients, overNetworks(web.paths(c.nodes[0], allKinds...), "tcp"), refused)
	}
}

// TestAPortWithoutAnyEndpointIsRefusedOnEveryFrontend covers a port without endpoints, without ready ones, and without
// endpoints that the topology keys allow.
func TestAPortWithoutAnyEndpointIsRefusedOnEveryFrontend(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	allPaths := web.paths(r.nodes[0], allKinds...)
	unready := web.slices([]*pod{r.near, r.far}, model.Endpoint{})
	for _, test := range []struct {
		desc   string
		change model.Change
	}{
		{"a Service without slices", service(web.withEverything)},
		{"endpoints that are neither ready nor serving", unready},
		{"both policies Local, without any endpoint", service(web.withEverything, internalLocal, externalLocal)},
		{"session affinity", service(web.withEverything, affinity(affinityHour))},
		{"a hard key that nothing matches",
			service(web.withEverything, topologyKeys("example.com/nobody")).Merge(endpoints(r.near, r.far))},
		{"no endpoint again", service(web.withEverything).Merge(endpoints())},
	} {
		r.apply(test.change)
		expect(t, test.desc, r.clients(), allPaths, refused)
	}
	r.apply(endpoints(r.near))
	expect(t, "an endpoint was added", r.clients(), allPaths, servedBy("near"))
}

// TestARefusalReachesClientsOfAnAddressAssignedToTheNode covers packets that would be delivered locally and not
// forwarded.
func TestARefusalReachesClientsOfAnAddressAssignedToTheNode(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	r.addAddrs(r.nodes[0], append(web.addrs(model.ExternalIP), web.addrs(model.LoadBalancerIP)...)...)
	r.reportAddrs(r.nodes[0])
	external := web.paths(r.nodes[0], externalKinds...)
	r.apply(service(web.withEverything))
	expect(t, "an external address of the node itself, no endpoint", r.clients(), external, refused)
	r.apply(service(web.withEverything, externalLocal).Merge(endpoints(r.far)))
	expect(t, "an external address of the node itself, endpoints only on other nodes", []*fabric.Namespace{r.host}, external, timesOut)
	expect(t, "internal clients of an external address of the node itself", []*fabric.Namespace{r.pod, r.node}, external, servedBy("far"))
	r.apply(endpoints(r.near))
	expect(t, "an external address of the node itself", r.clients(), external, servedBy("near"))
}

// TestTrafficForbiddenByAPolicyIsDroppedWithoutAReply checks that no client is refused while the Service has other endpoints.
func TestTrafficForbiddenByAPolicyIsDroppedWithoutAReply(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	internal, external := web.paths(r.nodes[0], model.ClusterIP), web.paths(r.nodes[0], externalKinds...)
	r.apply(service(web.withEverything, internalLocal).Merge(endpoints(r.far)))
	expect(t, "internalTrafficPolicy Local, endpoints only on other nodes", r.clients(), internal, timesOut)
	expect(t, "internalTrafficPolicy does not apply to external frontends", r.clients(), external, servedBy("far"))
	r.apply(service(web.withEverything, externalLocal))
	expect(t, "externalTrafficPolicy Local, endpoints only on other nodes", []*fabric.Namespace{r.host}, external, timesOut)
	expect(t, "externalTrafficPolicy does not apply to ClusterIPs", r.clients(), internal, servedBy("far"))
	r.apply(endpoints())
	expect(t, "externalTrafficPolicy Local without any endpoint", r.clients(), external, refused)
}

// TestTopologyKeysThatMatchNothingRefuse covers topology keys that allow none of the endpoints on other nodes.
func TestTopologyKeysThatMatchNothingRefuse(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	allPaths := web.paths(r.nodes[0], allKinds...)
	r.apply(service(web.withEverything, topologyKeys(policy.Hostname)).Merge(endpoints(r.far)))
	expect(t, "a hard key that nothing matches", r.clients(), allPaths, refused)
	r.apply(service(web.withEverything, topologyKeys(policy.Hostname, policy.AnyNode)))
	expect(t, "a soft key", r.clients(), allPaths, servedBy("far"))
}

// TestUndefinedPortsOfAClusterIPAreRefused covers ports and protocols that the Service does not define.
func TestUndefinedPortsOfAClusterIPAreRefused(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	onlyTCP := func(s *model.Service) { s.Ports = s.Ports[:1] }
	for _, test := range []struct {
		desc   string
		change model.Change
	}{
		{"with endpoints", service(onlyTCP).Merge(endpoints(r.near))},
		{"without endpoints", service(onlyTCP).Merge(endpoints())},
		{"dropped by policy on its own port", service(onlyTCP, internalLocal).Merge(endpoints(r.far))},
	} {
		r.apply(test.change)
		expect(t, "a protocol that the Service does not define, "+test.desc, r.clients(), overNetworks(paths, "udp", "sctp"), refused)
		expect(t, "a port that the Service does not define, "+test.desc, r.clients(), pathsTo(81, web.addrs(model.ClusterIP)...), refused)
	}
}

// TestUndefinedPortsOfExternalAddressesAreUntouched checks that packets to them pass: the address belongs to a machine
// that may serve other things on these ports.
func TestUndefinedPortsOfExternalAddressesAreUntouched(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	external := append(web.addrs(model.ExternalIP), web.addrs(model.LoadBalancerIP)...)
	r.addAddrs(r.nodes[0], external...)
	r.reportAddrs(r.nodes[0])
	r.serveOn(r.node, 81, external...)
	r.apply(service(web.withEverything).Merge(endpoints(r.near)))
	expect(t, "another port of an external address", r.clients(), pathsTo(81, external...), servedBy(r.node.Name))
	for _, client := range r.clients() {
		for _, addr := range external {
			echo, err := client.Ping(addr, fabric.Timeout)
			if want := map[bool]int{true: 0, false: 129}[addr.Is4()]; err != nil || echo.Type != want {
				t.Errorf("ping from %s to %s: %+v, %v, want an echo reply", client.Name, addr, echo, err)
			}
		}
	}
}
