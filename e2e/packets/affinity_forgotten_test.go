package packets_test

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestTrafficOnAConnectionDoesNotRenewAffinity checks that only new connections renew affinity. The affinity of a
// client that sends for longer than the timeout on one connection expires during that connection.
func TestTrafficOnAConnectionDoesNotRenewAffinity(t *testing.T) {
	t.Parallel()
	c, servers, clients := newSixServers(t)
	const timeout = time.Second
	c.apply(service(affinity(timeout)).Merge(endpoints(servers...)))
	for range 2 {
		open := converse(t, clients, paths)
		for range 6 {
			time.Sleep(timeout / 4)
			expectGoesOn(t, "the connection continues", open)
		}
		// By chance, all 18 get their previous endpoint once in 10^14 runs.
		for _, talking := range open {
			if mustRequest(t, talking.from, talking.to).Pod != talking.first.Pod {
				return
			}
		}
	}
	t.Error("every client still has affinity long after its last new connection")
}

// TestAffinityNeverOverridesReadinessOrTopology checks that a client with affinity to an endpoint that may no longer
// serve it gets an allowed endpoint.
func TestAffinityNeverOverridesReadinessOrTopology(t *testing.T) {
	t.Parallel()
	here := newTown(t, setup{config: clusterCIDR()})
	everywhere := web.paths(here.nodes[0], allKinds...)
	terminating, unready := endpoints(here.near, here.far), endpoints(here.near, here.far)
	for _, slice := range terminating.Slices {
		slice.Endpoints[0].Ready, slice.Endpoints[0].Terminating = false, true
	}
	for _, slice := range unready.Slices {
		slice.Endpoints[1].Ready, slice.Endpoints[1].Serving = false, false
	}
	sticky, inZone := affinity(anHour), topologyKeys(policy.Zone, policy.AnyNode)
	here.apply(service(web.withEverything, sticky).Merge(endpoints(here.far)))
	expect(t, "the only endpoint", here.clients(), everywhere, servedBy("far"))
	here.apply(endpoints(here.near, here.far))
	expect(t, "the endpoint with affinity", here.clients(), everywhere, servedBy("far"))
	for range 3 {
		here.apply(service(web.withEverything, sticky, inZone).Merge(endpoints(here.near, here.far)))
		expect(t, "topology prefers the endpoint in the zone", here.clients(), everywhere, servedBy("near"))
		here.apply(service(web.withEverything, sticky).Merge(terminating))
		expect(t, "the endpoint with affinity terminates", here.clients(), everywhere, servedBy("far"))
		here.apply(unready)
		expect(t, "the endpoint with affinity is not ready", here.clients(), everywhere, servedBy("near"))
		here.apply(endpoints(here.near, here.far))
		expect(t, "both are ready again", here.clients(), everywhere, servedBy("near"))
	}
}

// TestAffinityIsForgottenWhenItIsSwitchedOff also checks that enabling affinity again does not restore the old entries.
func TestAffinityIsForgottenWhenItIsSwitchedOff(t *testing.T) {
	t.Parallel()
	c, servers, clients := newSixServers(t)
	everywhere := web.paths(c.nodes[0], allKinds...)
	c.apply(service(web.withEverything, affinity(anHour)).Merge(endpoints(servers[0])))
	expect(t, "the only endpoint", clients, everywhere, servedBy(servers[0].Name))
	c.apply(endpoints(servers...))
	expect(t, "the endpoint with affinity", clients, everywhere, servedBy(servers[0].Name))
	c.apply(service(web.withEverything))
	c.apply(service(web.withEverything, affinity(anHour)))
	moved := 0
	for _, client := range clients {
		for _, to := range byNetwork(everywhere) {
			if sticksTo(t, "affinity enabled again", client, to) != servers[0].Name {
				moved++
			}
		}
	}
	if moved == 0 { // by chance, all 18 get the old endpoint once in 10^14 runs
		t.Error("every client has its old endpoint again")
	}
}
