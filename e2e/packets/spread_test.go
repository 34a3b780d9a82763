package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestConnectionsSpreadEvenly: over all endpoints, wherever they are, for every protocol and family and kind of
// frontend, from a pod and from the node itself.
func TestConnectionsSpreadEvenly(t *testing.T) {
	c := newCluster(t, 2)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[1], "b"), c.addServer(c.nodes[1], "c")}
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(web.withEverything).Then(endpoints(servers...)))
	for _, to := range append(paths, only(web.paths(c.nodes[0], model.NodePort, model.LoadBalancerIP), "tcp")...) {
		const connections = 150
		counts := map[string]int{}
		for number := range connections {
			from := client.Namespace
			if number%2 == 0 {
				from = c.nodes[0].Namespace
			}
			counts[mustAsk(t, from, to).Pod]++
		}
		if chi := chiSquare(counts, len(servers), connections); chi > 24 {
			t.Errorf("%s: connections went to %v: chi-square %.1f with 2 degrees of freedom, chance makes it exceed 24 once in 160,000 runs",
				to, counts, chi)
		}
	}
}

// chiSquare compares counts with an even spread.
func chiSquare(counts map[string]int, endpoints, connections int) float64 {
	expected := float64(connections) / float64(endpoints)
	chi := expected * float64(endpoints-len(counts)) // those that no connection reached
	for _, count := range counts {
		chi += (float64(count) - expected) * (float64(count) - expected) / expected
	}
	return chi
}

// TestEachNodeStaysInItsTier with real connections: by zone while there is an endpoint, everywhere when there is none,
// and back. A connection that is open meanwhile goes on.
func TestEachNodeStaysInItsTier(t *testing.T) {
	c := newCluster(t, 2)
	near, far := c.addServer(c.nodes[0], "near"), c.addServer(c.nodes[1], "far")
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(topologyKeys(policy.Zone, policy.AnyNode)))
	stays := func(want string) {
		t.Helper()
		for _, to := range paths {
			for range 10 {
				if got := mustAsk(t, client.Namespace, to).Pod; got != want {
					t.Fatalf("%s: %s answered, want %s", to, got, want)
				}
			}
		}
	}
	c.apply(endpoints(near, far))
	stays("near")
	open := converse(t, []*fabric.Namespace{client.Namespace}, only(paths, "tcp"))
	c.apply(endpoints(far))
	stays("far")
	expectGoesOn(t, "the tier changed", open)
	c.apply(endpoints(near, far))
	stays("near")
	expectGoesOn(t, "the tier changed back", open)
}
