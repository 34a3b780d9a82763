package packets_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// These are values of --nodeport-addresses.
var (
	onPrimary = model.NodePortAddresses{Primary: true}
	onSecond  = model.NodePortAddresses{Primary: true, Prefixes: secondPrefixes}
	onAll     = model.NodePortAddresses{}
)

// secondUDP are the UDP paths to the node port at the second addresses of a node.
var secondUDP = overNetworks(secondPaths, "udp")

// newSecondNodePorts returns a cluster in which the first node has the second addresses.
func newSecondNodePorts(t *testing.T, addresses model.NodePortAddresses) *nodePorts {
	t.Helper()
	n := newNodePorts(t, addresses)
	liftICMPLimits(t, n.node.Namespace)
	n.addAddrs(n.node, secondAddrs...)
	n.reportAddrs(n.node)
	return n
}

// restartWith starts a new proxy with another setting on the node, and applies a change from the time without a proxy.
func (n *nodePorts) restartWith(addresses model.NodePortAddresses, change model.Change) {
	n.t.Helper()
	n.setup.config.NodePorts = addresses
	n.state = n.state.Merge(change)
	n.restart(n.node)
	n.sync(n.node)
}

// setNodeAddrs changes the addresses in the Node object.
func (n *nodePorts) setNodeAddrs(addrs ...netip.Addr) {
	n.t.Helper()
	object := n.node.object()
	object.Addresses = addrs
	n.apply(model.Change{Nodes: map[string]*model.Node{n.node.Name: object}})
}

// TestAUDPFlowEndsWhenItsAddressServesNodePortsNoMore checks that the flow ends at once. Flows to addresses that still
// serve node ports continue.
func TestAUDPFlowEndsWhenItsAddressServesNodePortsNoMore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before model.NodePortAddresses
		change func(n *nodePorts)
	}{
		"all addresses to primary": {onAll, func(n *nodePorts) { n.restartWith(onPrimary, model.Change{}) }},
		"prefixes to primary":      {onSecond, func(n *nodePorts) { n.restartWith(onPrimary, model.Change{}) }},
		"an interface loses the address": {onSecond, func(n *nodePorts) {
			for _, addr := range secondAddrs {
				must.Succeed(n.t, n.node.RemoveAddr(addr))
			}
			n.reportAddrs(n.node)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSecondNodePorts(t, test.before)
			ending := openConnections(t, []*fabric.Namespace{n.pod, n.host}, secondUDP)
			continuing := openConnections(t, n.clients(), overNetworks(n.ownPaths(), "udp"))
			test.change(n)
			expectNext(t, name, ending, isUnreplied)
			expectContinues(t, name, continuing)
		})
	}
}

// TestAUDPFlowEndsWhenTheNodeObjectNamesAnotherAddress covers an old address that stays on the node.
func TestAUDPFlowEndsWhenTheNodeObjectNamesAnotherAddress(t *testing.T) {
	t.Parallel()
	n := newSecondNodePorts(t, onPrimary)
	n.setNodeAddrs(n.node.IPv4, secondAddrs[1])
	ending, continuing := openConnections(t, n.clients(), secondUDP[1:]),
		openConnections(t, n.clients(), overNetworks(n.ownPaths()[:3], "udp"))
	n.setNodeAddrs(n.node.IPv4, n.node.IPv6)
	expectNext(t, "IPv6, whose address changed", ending, isUnreplied)
	expectContinues(t, "IPv4, whose address is unchanged", continuing)
}

// TestAUDPFlowEndsWithItsServiceThoughItsAddressServesNodePortsNoMore makes both changes while no proxy runs.
func TestAUDPFlowEndsWithItsServiceThoughItsAddressServesNodePortsNoMore(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]model.Change{"the endpoint was removed": endpoints(), "the Service was deleted": web.deletion()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSecondNodePorts(t, onSecond)
			open := openConnections(t, n.clients(), append(overNetworks(n.ownPaths(), "udp"), secondUDP...))
			n.restartWith(onPrimary, change)
			expectNext(t, name, open, isUnreplied)
		})
	}
}

// TestAUDPFlowThatAnotherProxyTranslatedEndsWithItsEndpoint covers another proxy that served the node port at another
// address. Its clients get replies while its table exists.
func TestAUDPFlowThatAnotherProxyTranslatedEndsWithItsEndpoint(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(n *nodePorts){
		"its endpoint was removed":      func(n *nodePorts) { n.apply(endpoints(n.far)) },
		"its last endpoint was removed": func(n *nodePorts) { n.apply(endpoints()) },
		"its Service was deleted":       func(n *nodePorts) { n.apply(web.deletion()) },
		"both were removed":             func(n *nodePorts) { n.apply(web.deletion().Merge(endpoints())) },
		"only the Service changed": func(n *nodePorts) {
			n.apply(service(web.withNodePorts, affinity(affinityHour)).Merge(endpoints(n.far)))
		},
		"its node port has another number": func(n *nodePorts) { n.apply(service()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSecondNodePorts(t, onPrimary)
			remove := addForeignDNAT(t, n.node, secondUDP, n.near)
			open := openConnections(t, n.clients(), secondUDP)
			n.restart(n.node)
			n.sync(n.node)
			expectNext(t, "a proxy starts next to it", open, isServedBy("near"))
			remove()
			expectNext(t, "the other table was deleted", open, isServedBy("near"))
			change(n)
			expectNext(t, name, open, isUnreplied)
		})
	}
}

// TestFlowsToOtherPodsAndSocketsAreKept covers flows to the number of a node port that another program's table
// translated to a pod that never was an endpoint, or that a process of the node serves.
func TestFlowsToOtherPodsAndSocketsAreKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		addresses     model.NodePortAddresses
		isTranslated  bool
		restartedWith *model.NodePortAddresses
	}{
		"translated, address serves no node ports":       {onPrimary, true, &onPrimary},
		"translated, address serves node ports":          {onAll, true, nil},
		"translated, address ceases to serve node ports": {onSecond, true, &onPrimary},
		"local process, with a restart":                  {onPrimary, false, &onPrimary},
		"local process, without a restart":               {onPrimary, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSecondNodePorts(t, test.addresses)
			remove := func() {}
			if test.isTranslated {
				remove = addForeignDNAT(t, n.node, secondUDP, n.addServer(n.node, "foreign"))
			} else {
				n.serveOn(n.node.Namespace, web.nodePort(), secondAddrs...)
			}
			open := openConnections(t, n.clients(), secondUDP)
			remove()
			if test.restartedWith != nil {
				n.restartWith(*test.restartedWith, model.Change{})
				expectContinues(t, "a restart", open)
			}
			for desc, change := range map[string]model.Change{
				"an endpoint was removed": endpoints(n.far), "the last one was removed": endpoints(),
				"an endpoint was added": endpoints(n.near), "the Service was deleted": web.deletion(),
			} {
				n.apply(change)
				expectContinues(t, desc, open)
			}
		})
	}
}

// routeLocally makes all addresses inside secondPrefixes local to the node by routes; no interface has them.
func routeLocally(t *testing.T, n *node, verb string) {
	t.Helper()
	for _, prefix := range secondPrefixes {
		args := strings.Fields("route " + verb + " local " + prefix.String() + " dev lo")
		_, err := n.Run(exec.CommandContext(t.Context(), "ip", args...))
		must.Succeed(t, err)
	}
}

// TestAUDPFlowToAnAddressThatIsLocalByARoute checks that the flow stays while its endpoint serves, if all addresses of
// the node serve node ports. Then it moves.
func TestAUDPFlowToAnAddressThatIsLocalByARoute(t *testing.T) {
	t.Parallel()
	n := newNodePorts(t, onAll)
	routeLocally(t, n.node, "add")
	open := openConnections(t, n.clients(), secondUDP)
	n.restart(n.node)
	n.sync(n.node)
	expectContinues(t, "a restart", open)
	n.node.proxy.ForceFullSync()
	n.apply(endpoints(n.near, n.far))
	n.apply(service(web.withNodePorts, externalLocal))
	expectContinues(t, "another endpoint that may serve", open)
	n.apply(service(web.withNodePorts).Merge(endpoints(n.far)))
	expectNext(t, "its endpoint was removed", open, isServedBy("far"))
	n.apply(web.deletion())
	expectNext(t, "its Service was deleted", open, isUnreplied)
}

// TestAUDPFlowFromAnAddressThatIsLocalByARoute checks that the flow is the node's own: externalTrafficPolicy Local
// applies only to external clients.
func TestAUDPFlowFromAnAddressThatIsLocalByARoute(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]model.NodePortAddresses{"node ports on all": onAll, "on primary": onPrimary} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNodePorts(t, config)
			routeLocally(t, n.node, "add")
			must.Succeed(t, n.node.SetSysctl("net.ipv6.ip_nonlocal_bind", "1")) // without it IPv6 cannot bind to such an address
			n.apply(service(web.withEverything, externalLocal).Merge(endpoints(n.far)))
			var open []*openConnection
			for _, to := range overNetworks(web.paths(n.node, externalKinds...), "udp") {
				sourceAddr := secondAddrs[to.family()]
				opened, err := n.node.OpenFrom(sourceAddr, to.addr)
				must.Succeed(t, err)
				t.Cleanup(func() { _ = opened.Close() }) // ignore the error: the test is over
				c := &openConnection{Connection: opened, from: n.node.Namespace, to: to}
				if c.first, err = c.Request(fabric.Timeout); err != nil || c.first.Pod != "far" {
					t.Fatalf("%s from %s: %+v, %v", to, sourceAddr, c.first, err)
				}
				open = append(open, c)
			}
			n.restart(n.node)
			n.sync(n.node)
			expectContinues(t, "a restart", open)
			n.apply(endpoints(n.near))
			expectNext(t, "its endpoint was removed", open, isServedBy("near"))
		})
	}
}
