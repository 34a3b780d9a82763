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
		open := openConnections(t, clients, paths)
		for range 6 {
			time.Sleep(timeout / 4)
			expectContinues(t, "the connection continues", open)
		}
		// By chance, all 18 connections get their previous endpoint once in 10^14 runs.
		for _, conn := range open {
			if mustRequest(t, conn.from, conn.to).Pod != conn.first.Pod {
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
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	allPaths := web.paths(c.nodes[0], allKinds...)
	terminating, unready := endpoints(c.near, c.far), endpoints(c.near, c.far)
	for _, slice := range terminating.Slices {
		slice.Endpoints[0].Ready, slice.Endpoints[0].Terminating = false, true
	}
	for _, slice := range unready.Slices {
		slice.Endpoints[1].Ready, slice.Endpoints[1].Serving = false, false
	}
	withAffinity, inZone := affinity(affinityHour), topologyKeys(policy.Zone, policy.AnyNode)
	c.apply(service(web.withEverything, withAffinity).Merge(endpoints(c.far)))
	expect(t, "the only endpoint", c.clients(), allPaths, servedBy("far"))
	c.apply(endpoints(c.near, c.far))
	expect(t, "the endpoint with affinity", c.clients(), allPaths, servedBy("far"))
	for range 3 {
		c.apply(service(web.withEverything, withAffinity, inZone).Merge(endpoints(c.near, c.far)))
		expect(t, "topology prefers the endpoint in the zone", c.clients(), allPaths, servedBy("near"))
		c.apply(service(web.withEverything, withAffinity).Merge(terminating))
		expect(t, "the endpoint with affinity terminates", c.clients(), allPaths, servedBy("far"))
		c.apply(unready)
		expect(t, "the endpoint with affinity is not ready", c.clients(), allPaths, servedBy("near"))
		c.apply(endpoints(c.near, c.far))
		expect(t, "both are ready again", c.clients(), allPaths, servedBy("near"))
	}
}

// TestAffinityIsForgottenWhenItIsSwitchedOff also checks that enabling affinity again does not restore the old entries.
func TestAffinityIsForgottenWhenItIsSwitchedOff(t *testing.T) {
	t.Parallel()
	c, servers, clients := newSixServers(t)
	allPaths := web.paths(c.nodes[0], allKinds...)
	c.apply(service(web.withEverything, affinity(affinityHour)).Merge(endpoints(servers[0])))
	expect(t, "the only endpoint", clients, allPaths, servedBy(servers[0].Name))
	c.apply(endpoints(servers...))
	expect(t, "the endpoint with affinity", clients, allPaths, servedBy(servers[0].Name))
	c.apply(service(web.withEverything))
	c.apply(service(web.withEverything, affinity(affinityHour)))
	moved := 0
	for _, client := range clients {
		for _, to := range byNetwork(allPaths) {
			if expectOneServerOnAll(t, "affinity enabled again", client, to) != servers[0].Name {
				moved++
			}
		}
	}
	if moved == 0 { // by chance, all 18 get the old endpoint once in 10^14 runs
		t.Error("every client has its old endpoint again")
	}
}
