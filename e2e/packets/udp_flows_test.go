package packets_test

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// udpFlows are sockets that keep sending from one port over every frontend of web, from every kind of client.
type udpFlows struct {
	*twoNodes
	inside, outside []*openConnection
}

func newUDPFlows(t *testing.T, c *twoNodes) *udpFlows {
	t.Helper()
	all := overNetworks(web.paths(c.nodes[0], allKinds...), "udp")
	return &udpFlows{twoNodes: c, inside: openConnections(t, append(c.pod, c.node...), all), outside: openConnections(t, c.host, all)}
}

func (f *udpFlows) all() []*openConnection {
	return append(append([]*openConnection{}, f.inside...), f.outside...)
}

// external returns the flows that externalTrafficPolicy governs; if want is false, the other flows.
func external(open []*openConnection, want bool) []*openConnection {
	var found []*openConnection
	for _, c := range open {
		clusterIP := web.addr(model.ClusterIP, c.to.family())
		if isExternal := c.to.addr.Addr() != clusterIP; isExternal == want {
			found = append(found, c)
		}
	}
	return found
}

// expectNext sends another request over every flow, concurrently because some of them time out.
func expectNext(t *testing.T, desc string, open []*openConnection, should func(*openConnection) error) {
	t.Helper()
	failures := make([]error, len(open))
	var requests sync.WaitGroup
	for i, c := range open {
		requests.Go(func() { failures[i] = should(c) })
	}
	requests.Wait()
	for i, err := range failures {
		if err != nil {
			t.Errorf("%s: %s from %s: %v", desc, open[i].to, open[i].from.Name, err)
		}
	}
}

func isServedBy(name string) func(*openConnection) error {
	return func(c *openConnection) error {
		reply, err := c.Request(fabric.Timeout)
		if err == nil && reply.Pod != name {
			return fmt.Errorf("%s replied, want %s", reply.Pod, name)
		}
		return err
	}
}

func isUnreplied(c *openConnection) error {
	if reply, err := c.Request(immediateTimeout); err == nil {
		return fmt.Errorf("%s replied, want no reply", reply.Pod)
	}
	return nil
}

func isRefused(c *openConnection) error {
	_, err := c.Request(fabric.Timeout)
	return checkRefused(err)
}

func checkRefused(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return fmt.Errorf("%w, want a refusal", replyError(err))
}

// newTwoNodesForFlows returns two nodes; the first one sends ICMP errors without a limit.
func newTwoNodesForFlows(t *testing.T) *twoNodes {
	t.Helper()
	c := newTwoNodes(t, setup{config: clusterCIDR()})
	liftICMPLimits(t, c.node[0])
	return c
}

// TestAUDPFlowMovesWhenItsEndpointIsRemoved covers every frontend. The flow is refused when the last endpoint is
// removed. An endpoint that is added later serves the same socket.
func TestAUDPFlowMovesWhenItsEndpointIsRemoved(t *testing.T) {
	t.Parallel()
	c := newTwoNodesForFlows(t)
	c.apply(service(web.withEverything).Merge(endpoints(c.near)))
	flows := newUDPFlows(t, c)
	c.apply(endpoints(c.near, c.far))
	expectContinues(t, "another endpoint was added", flows.all())
	c.apply(endpoints(c.far))
	expectNext(t, "the endpoint was removed", flows.all(), isServedBy("far"))
	c.apply(endpoints())
	for range 2 { // a socket on the node gets the error twice: from send, and as an ICMP error from the next send
		expectNext(t, "the last endpoint was removed", flows.all(), isRefused)
	}
	c.apply(endpoints(c.near))
	expectNext(t, "an endpoint was added", flows.all(), isServedBy("near"))
}

// TestAUDPFlowEndsWithItsService checks that the flow also ends with the Service's port or address.
func TestAUDPFlowEndsWithItsService(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change model.Change
		ends   func(all []*openConnection) (ended, continuing []*openConnection)
	}{
		"the Service is deleted": {web.deletion(), func(all []*openConnection) ([]*openConnection, []*openConnection) { return all, nil }},
		"the external frontends are removed": {service(), func(all []*openConnection) ([]*openConnection, []*openConnection) {
			return external(all, true), external(all, false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTwoNodesForFlows(t)
			c.apply(service(web.withEverything).Merge(endpoints(c.near)))
			flows := newUDPFlows(t, c)
			c.apply(test.change)
			ended, continuing := test.ends(flows.all())
			expectNext(t, name, ended, isUnreplied)
			expectContinues(t, name, continuing)
			c.apply(service(web.withEverything))
			expectNext(t, "all frontends exist again", flows.all(), isServedBy("near"))
		})
	}
}

// TestAStaleUDPFlowEndsWhenAProxyStarts covers flows to a Service that was deleted, or to an endpoint that was removed,
// while no proxy ran.
func TestAStaleUDPFlowEndsWhenAProxyStarts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change model.Change
		should func(*openConnection) error
	}{
		"the Service was deleted":  {web.deletion(), isUnreplied},
		"the endpoint was removed": {endpoints(), isRefused},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTwoNodesForFlows(t)
			c.apply(service(web.withEverything).Merge(endpoints(c.near)))
			flows := newUDPFlows(t, c)
			c.state = c.state.Merge(test.change)
			c.restart(c.nodes[0])
			c.sync(c.nodes[0])
			expectNext(t, name, flows.all(), test.should)
		})
	}
}

// TestAUDPFlowOlderThanItsServiceReachesIt covers a flow of packets that were dropped, untranslated, until the
// Service existed.
func TestAUDPFlowOlderThanItsServiceReachesIt(t *testing.T) {
	t.Parallel()
	c := newTwoNodesForFlows(t)
	var open []*openConnection
	for _, from := range append(append(c.pod, c.node...), c.host...) {
		for _, to := range overNetworks(web.paths(c.nodes[0], allKinds...), "udp") {
			opened, err := from.Open(to.network, to.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() }) // ignore the error: the test is over
			open = append(open, &openConnection{Connection: opened, from: from, to: to})
		}
	}
	expectNext(t, "before the Service exists", open, isUnreplied)
	c.apply(service(web.withEverything).Merge(endpoints(c.near)))
	expectNext(t, "the Service was created", open, isServedBy("near"))
}

// TestAUDPFlowFollowsThePolicies checks that a client moves to another endpoint when its own may no longer serve it.
func TestAUDPFlowFollowsThePolicies(t *testing.T) {
	t.Parallel()
	c := newTwoNodesForFlows(t)
	c.apply(service(web.withEverything).Merge(endpoints(c.far)))
	flows := newUDPFlows(t, c)
	c.apply(endpoints(c.near, c.far))
	expectContinues(t, "a nearer endpoint was added", flows.all())

	c.apply(service(web.withEverything, externalLocal))
	expectNext(t, "externalTrafficPolicy Local: external clients leave the far endpoint", external(flows.outside, true), isServedBy("near"))
	expectContinues(t, "externalTrafficPolicy Local does not apply to internal clients", flows.inside)
	expectContinues(t, "externalTrafficPolicy Local does not apply to the ClusterIP", external(flows.outside, false))

	c.apply(service(web.withEverything, internalLocal, externalLocal))
	expectNext(t, "internalTrafficPolicy Local: all clients leave the far endpoint", external(flows.all(), false), isServedBy("near"))
	expectContinues(t, "internalTrafficPolicy Local does not apply to external frontends", external(flows.inside, true))
}

// TestAUDPFlowFollowsTopologyKeysThatForbid also checks that keys that only prefer do not end flows: a flow stays when
// endpoints of a nearer tier are added.
func TestAUDPFlowFollowsTopologyKeysThatForbid(t *testing.T) {
	t.Parallel()
	c := newTwoNodesForFlows(t)
	c.apply(service(web.withEverything).Merge(endpoints(c.far)))
	flows := newUDPFlows(t, c)
	c.apply(service(web.withEverything, topologyKeys(policy.Zone, policy.AnyNode)).Merge(endpoints(c.near, c.far)))
	expectContinues(t, "a soft key that prefers another endpoint", flows.all())
	c.apply(service(web.withEverything, topologyKeys(policy.Zone)))
	expectNext(t, "a hard key that forbids the endpoint", flows.all(), isServedBy("near"))
}

// TestAUDPFlowStaysWithAnEndpointThatTerminatesAndServes checks that a serving endpoint keeps its flows while it
// terminates.
func TestAUDPFlowStaysWithAnEndpointThatTerminatesAndServes(t *testing.T) {
	t.Parallel()
	c := newTwoNodesForFlows(t)
	c.apply(service(web.withEverything).Merge(endpoints(c.near)))
	flows := newUDPFlows(t, c)
	terminating := endpoints(c.near, c.far)
	for _, slice := range terminating.Slices {
		slice.Endpoints[0].Ready, slice.Endpoints[0].Terminating = false, true
	}
	c.apply(terminating)
	expectContinues(t, "the endpoint terminates and serves", flows.all())
	for _, slice := range terminating.Slices {
		serving := *slice
		serving.Endpoints = append([]model.SliceEndpoint{}, slice.Endpoints...)
		serving.Endpoints[0].Serving = false
		terminating.Slices[slice.Name] = &serving
	}
	c.apply(terminating)
	expectNext(t, "the endpoint has ended", flows.all(), isServedBy("far"))
}

// TestOtherFlowsAreKept covers flows of other Services, and flows that are not ours.
func TestOtherFlowsAreKept(t *testing.T) {
	t.Parallel()
	c := newTwoNodesForFlows(t)
	other := app{"other", 11}
	c.apply(other.service(other.withEverything).Merge(other.endpoints(c.near, c.far)))
	c.apply(service(web.withEverything).Merge(endpoints(c.near)))
	clients := append(append(c.pod, c.node...), c.host...)
	direct := pathsTo(podPort, c.near.IPv4, c.far.IPv4, c.near.IPv6, c.far.IPv6)
	open := openConnections(t, clients, append(overNetworks(other.paths(c.nodes[0], allKinds...), "udp"), overNetworks(direct, "udp")...))
	for _, change := range []model.Change{endpoints(c.far), endpoints(), web.deletion()} {
		c.apply(change)
		expectContinues(t, "another Service changed", open)
	}
}

// TestTighterSourceRangesEndTheFlowsThatTheyNoLongerAllow checks that no other flow ends.
func TestTighterSourceRangesEndTheFlowsThatTheyNoLongerAllow(t *testing.T) {
	t.Parallel()
	r := newRefusals(t)
	balancer := overNetworks(web.paths(r.nodes[0], model.LoadBalancerIP), "udp")
	otherPaths := overNetworks(web.paths(r.nodes[0], model.ExternalIP), "udp")
	r.apply(service(web.withEverything).Merge(endpoints(r.near)))
	fromHost, fromPod := openConnections(t, []*fabric.Namespace{r.host}, balancer), openConnections(t, []*fabric.Namespace{r.pod}, balancer)
	elsewhere := openConnections(t, []*fabric.Namespace{r.host}, otherPaths)
	r.apply(service(web.withEverything, clientRanges(r.host, r.pod)))
	expectNext(t, "ranges with both clients", append(fromHost, fromPod...), isServedBy("near"))
	r.apply(service(web.withEverything, clientRanges(r.pod)))
	expectNext(t, "ranges without the client", fromHost, isUnreplied)
	expectNext(t, "ranges with the client", fromPod, isServedBy("near"))
	expectNext(t, "another frontend", elsewhere, isServedBy("near"))
}
