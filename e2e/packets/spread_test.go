package packets_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestConnectionsSpreadEvenly covers all endpoints, wherever they are, for every protocol, family and kind of frontend,
// from a pod and from the node itself.
func TestConnectionsSpreadEvenly(t *testing.T) {
	c := newCluster(t, 2)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[1], "b"), c.addServer(c.nodes[1], "c")}
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(web.withEverything).Merge(endpoints(servers...)))
	expectEvenSpread(t, c, client, len(servers), 24)
}

// TestConnectionsToADedicatedMapSpreadEvenly covers a port with so many addresses and endpoints that it has its own
// endpoint map.
func TestConnectionsToADedicatedMapSpreadEvenly(t *testing.T) {
	c := newCluster(t, 2)
	servers := c.addServers(12)
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(web.withEverything, withManyAddresses).Merge(endpoints(servers...)))
	expectEvenSpread(t, c, client, len(servers), 48)
}

// addServers adds pods, alternating between the nodes.
func (c *cluster) addServers(count int) []*pod {
	var servers []*pod
	for number := range count {
		servers = append(servers, c.addServer(c.nodes[number%len(c.nodes)], fmt.Sprint("server-", number)))
	}
	return servers
}

// withManyAddresses adds 200 external IPs of each family to a Service.
func withManyAddresses(s *model.Service) {
	for _, first := range []string{"198.19.0.0", "2001:db8:f::"} {
		addr := netip.MustParseAddr(first)
		for range 200 {
			s.ExternalIPs = append(s.ExternalIPs, addr)
			addr = addr.Next()
		}
	}
}

// TestADedicatedMapAppliesPoliciesAndChanges checks that a port with its own map behaves like the others: with a Local
// policy, depending on the client; when endpoints are removed; and when it switches to the shared map and back, which
// no open connection notices.
func TestADedicatedMapAppliesPoliciesAndChanges(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	far := r.addServers(12)
	near := slices.DeleteFunc(slices.Clone(far), func(server *pod) bool { return server.Node != r.nodes[0].Node })
	all := endpoints(append(slices.Clone(far), r.near)...)
	external := overNetworks(web.paths(r.nodes[0], model.ExternalIP, model.NodePort, model.LoadBalancerIP), "tcp", "udp")
	among := func(servers []*pod) expectation {
		return func(from *fabric.Namespace, to path) error {
			reply, err := from.Request(to.network, to.addr, fabric.Timeout)
			isOne := func(server *pod) bool { return server.Name == reply.Pod }
			if err == nil && !slices.ContainsFunc(servers, isOne) {
				err = fmt.Errorf("unexpected reply from %s", reply.Pod)
			}
			return err
		}
	}
	r.apply(service(web.withEverything, withManyAddresses, externalLocal).Merge(all))
	for range 8 {
		expect(t, "externalTrafficPolicy: Local, from outside", []*fabric.Namespace{r.host}, external, among(append(near, r.near)))
		expect(t, "externalTrafficPolicy: Local, from a pod", []*fabric.Namespace{r.pod}, external, among(append(far, r.near)))
	}
	r.apply(service(web.withEverything, withManyAddresses, internalLocal).Merge(all))
	for range 8 {
		expect(t, "internalTrafficPolicy: Local", []*fabric.Namespace{r.pod}, web.paths(r.nodes[0], model.ClusterIP), among(append(near, r.near)))
	}
	r.apply(service(web.withEverything, withManyAddresses).Merge(all))
	open := openConnections(t, r.clients(), overNetworks(web.paths(r.nodes[0], model.ClusterIP), "tcp"))
	r.apply(service(web.withEverything))
	expectContinues(t, "the port uses the shared map", open)
	r.apply(service(web.withEverything, withManyAddresses))
	expectContinues(t, "the port has its own map again", open)
	r.apply(endpoints(far[:11]...))
	for range 8 {
		expect(t, "endpoints were removed", r.clients(), external, among(far[:11]))
	}
	expectContinues(t, "some endpoints were removed", open)
}

// expectEvenSpread fails if connections from a pod and from the node prefer some endpoints. By chance, chi-square exceeds
// the limit once in 100,000 runs.
func expectEvenSpread(t *testing.T, c *cluster, client *fabric.Pod, servers int, limit float64) {
	t.Helper()
	for _, to := range append(paths, overNetworks(web.paths(c.nodes[0], model.NodePort, model.LoadBalancerIP), "tcp")...) {
		connections := 50 * servers
		counts := map[string]int{}
		for number := range connections {
			from := client.Namespace
			if number%2 == 0 {
				from = c.nodes[0].Namespace
			}
			counts[mustRequest(t, from, to).Pod]++
		}
		if chi := chiSquare(counts, servers, connections); chi > limit {
			t.Errorf("%s: connections went to %v: chi-square %.1f, want %.0f at most", to, counts, chi, limit)
		}
	}
}

// chiSquare compares counts with an even distribution.
func chiSquare(counts map[string]int, endpoints, connections int) float64 {
	expected := float64(connections) / float64(endpoints)
	chi := expected * float64(endpoints-len(counts)) // endpoints without connections
	for _, count := range counts {
		chi += (float64(count) - expected) * (float64(count) - expected) / expected
	}
	return chi
}

// TestEachNodeStaysInItsTier uses real connections: in the zone while it has an endpoint, everywhere when it has none,
// and back. An open connection keeps its endpoint.
func TestEachNodeStaysInItsTier(t *testing.T) {
	c := newCluster(t, 2)
	near, far := c.addServer(c.nodes[0], "near"), c.addServer(c.nodes[1], "far")
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(topologyKeys(policy.Zone, policy.AnyNode)))
	expectServer := func(want string) {
		t.Helper()
		for _, to := range paths {
			for range 10 {
				if got := mustRequest(t, client.Namespace, to).Pod; got != want {
					t.Fatalf("%s: %s replied, want %s", to, got, want)
				}
			}
		}
	}
	c.apply(endpoints(near, far))
	expectServer("near")
	open := openConnections(t, []*fabric.Namespace{client.Namespace}, overNetworks(paths, "tcp"))
	c.apply(endpoints(far))
	expectServer("far")
	expectContinues(t, "the tier changed", open)
	c.apply(endpoints(near, far))
	expectServer("near")
	expectContinues(t, "the tier changed back", open)
}
