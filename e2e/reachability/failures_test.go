package reachability_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestADeadNodeThatCannotBeDistinguishedFromALivingOneStays checks that a node stays where probes cannot show that it
// failed: everything is as without failure detection, although nothing replies on the node.
func TestADeadNodeThatCannotBeDistinguishedFromALivingOneStays(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		prepare func(s *testbed)
		outcome string // the expected outcome of suspicions
	}{
		"a CNI drops probes of the node from the beginning": {prepare: func(s *testbed) {
			s.drop(s.nodes[1].Namespace, probePorts)
			s.unresponsive = 1
		}},
		"another machine replies at the Node's address, such as a gateway with NAT": {prepare: func(s *testbed) {
			s.overrides[1] = s.nodes[2].IPv4
		}, outcome: "replied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPreparedTestbed(t, "enforce", scene.prepare)
			if s.unresponsive == 0 {
				s.drop(s.nodes[1].Namespace, poweredOff...)
			} else {
				s.drop(s.pods[1].Namespace, poweredOff...)
			}
			all := s.load(web, 50, 10*time.Second, time.Second)
			if all.failed*4 < all.made {
				t.Errorf("only %d of %d connections failed, so the node did not fail", all.failed, all.made)
			}
			s.expectNoEjection(s.proxy)
			if scene.outcome != "" {
				s.expectOutcome(scene.outcome)
			}
			if withoutBaseline := s.metric("vicinity_reachability_targets",
				`state="without_baseline"`); withoutBaseline != float64(2*s.unresponsive) {
				t.Errorf("%v targets without a baseline, want %d", withoutBaseline, 2*s.unresponsive)
			}
		})
	}
}

// TestANodeBehindAGateway probes a node at the gateway's address. The gateway forwards the node's health check port and
// drops packets to other ports. The node is unreachable exactly while it fails, although the gateway is up.
func TestANodeBehindAGateway(t *testing.T) {
	t.Parallel()
	var hidden *fabric.Node
	s := newPreparedTestbed(t, "enforce", func(s *testbed) {
		gateway, err := s.network.AddNode("gateway")
		must.Succeed(t, err)
		hidden = s.nodes[1]
		s.nft(gateway.Namespace, fmt.Sprintf(`table ip nat {
			chain in { type nat hook prerouting priority dstnat; tcp dport 10256 dnat to %s; }
			chain out { type nat hook postrouting priority srcnat; ip daddr %[1]s masquerade; }
			chain closed { type filter hook input priority filter; tcp dport { 9, 10250 } drop; }
		}`, hidden.IPv4))
		must.Succeed(t, s.nodes[0].RouteVia(single(s.pods[1].IPv4), gateway.Namespace))
		s.drop(hidden.Namespace, "ip saddr "+s.nodes[0].IPv4.String()) // there is no other path to it
		s.overrides[1] = gateway.IPv4
	})
	s.drop(s.pods[1].Namespace, s.deniedClients())
	s.load(web, 50, 6*time.Second, time.Second)
	s.expectNoEjection(s.proxy)
	s.expectOutcome("replied")
	must.Succeed(t, hidden.Unplug())
	s.load(web, 50, 3*time.Second, time.Second)
	s.expectEjected(hidden, 1)
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// TestAsymmetricRoutes has packets to a node that go through another node, and replies that come directly. If the other
// node drops these packets, or rejects them with an ICMP error, the node is unreachable from node-1, and from no other
// node.
func TestAsymmetricRoutes(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]string{"silently": "drop", "with an ICMP error": "reject with icmp type host-unreachable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPreparedTestbed(t, "enforce", func(s *testbed) {
				for _, to := range []netip.Addr{s.nodes[1].IPv4, s.pods[1].IPv4} {
					must.Succeed(t, s.nodes[0].RouteVia(single(to), s.nodes[2].Namespace))
				}
			})
			if all := s.load(web, 50, 6*time.Second, clientTimeout); all.failed > 0 {
				t.Errorf("%d of %d connections failed: %v", all.failed, all.made, all.errors)
			}
			s.expectNoEjection(s.proxy)
			s.nft(s.nodes[2].Namespace, fmt.Sprintf(`table inet dark { chain passing { type filter hook forward priority -500;
				ip daddr { %s, %s } %s; }; }`, s.nodes[1].IPv4, s.pods[1].IPv4, verdict))
			all := s.load(web, 50, 6*time.Second, 3*clientTimeout)
			// The kernel fails a connection attempt if its SYN gets an ICMP error; proxies cannot prevent that.
			if all.failed > all.errors[unix.EHOSTUNREACH.Error()] || all.failed == 0 && all.waited == 0 {
				t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
			}
			s.expectEjected(s.nodes[1], 1)
			for _, other := range s.proxies[1:] {
				s.expectNoEjection(other)
			}
		})
	}
}

// TestDelayAndLoss delays packets to and from a node by 400 ms and drops a fifth of them, each way. That neither ejects
// the node nor hides its failure.
func TestDelayAndLoss(t *testing.T) {
	t.Parallel()
	for name, fromTheBeginning := range map[string]bool{"from the beginning": true, "suddenly": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var path *fabric.LossyPath
			s := newPreparedTestbed(t, "enforce", func(s *testbed) {
				path = s.addLossyPath(1)
				if fromTheBeginning { // no loss at first: a lost first probe would be repeated only a minute later
					path.SetImpairment(400*time.Millisecond, 0)
				}
			})
			path.SetImpairment(400*time.Millisecond, 0.2)
			all := s.load(web, 20, 30*time.Second, clientTimeout)
			t.Logf("%d connections: %d failed %v, %d waited, the longest %v; %d packets were lost on the link", all.made, all.failed, all.errors,
				all.waited, all.maxDuration, path.Dropped())
			s.expectNoEjection(s.proxy)
			s.expectOutcome("replied", "flows_replied")
			s.drop(s.nodes[1].Namespace, poweredOff...)
			s.load(web, 20, 3*time.Second, time.Second)
			s.expectEjected(s.nodes[1], 1)
		})
	}
}

// TestANodeThatFlaps checks that the node is ejected a few times, only while it fails, and is restored once it has
// replied for a while.
func TestANodeThatFlaps(t *testing.T) {
	t.Parallel()
	s := newTestbed(t, "enforce")
	var load sync.WaitGroup
	load.Go(func() { s.load(web, 50, time.Minute, time.Second) })
	for range 6 {
		end := s.drop(s.nodes[1].Namespace, poweredOff...)
		time.Sleep(5 * time.Second)
		before := len(ejectedNodes(s.proxy))
		end()
		time.Sleep(5 * time.Second)
		if after := len(ejectedNodes(s.proxy)); after != before {
			t.Error("the node was ejected while it replied")
		}
	}
	load.Wait()
	s.expectEjected(s.nodes[1], 0)
	if ejected := ejectedNodes(s.proxy); len(ejected) > 3 {
		t.Errorf("%d ejections in a minute, want at most 3", len(ejected))
	}
}

// TestEstablishedConnectionsStay checks that open connections and UDP flows to an unreachable node work again when it
// is back. A client that sends its first datagram in the meantime is served by another node.
func TestEstablishedConnectionsStay(t *testing.T) {
	t.Parallel()
	udp := netip.MustParseAddrPort("10.96.0.11:80")
	s := newPreparedTestbed(t, "enforce", func(s *testbed) {
		s.extraManifests = fmt.Sprintf(datagramManifests, udp.Addr(), s.pods[1].IPv4, s.pods[2].IPv4, s.pods[3].IPv4)
	})
	conns, datagrams := s.open("tcp", web, 200), s.open("udp", udp, 30)
	before := s.nodesOf(datagrams)
	end := s.drop(s.nodes[1].Namespace, poweredOff...)
	s.load(web, 50, 3*time.Second, clientTimeout)
	s.waitForUnreachable(1)
	for range 30 {
		one, err := s.client.Open("udp", udp)
		must.Succeed(t, err)
		wait.Success(t, "new flows go to other nodes", func() error {
			_, err := one.Request(time.Second)
			return err
		})
		must.Succeed(t, one.Close())
	}
	end()
	s.expectEjected(s.nodes[1], 0)
	for _, one := range conns {
		if _, err := one.Request(3 * clientTimeout); err != nil {
			t.Errorf("request on an established connection: %v", err)
		}
	}
	if after := s.nodesOf(datagrams); !slices.Equal(after, before) {
		t.Errorf("UDP flows go to %v, want %v as before", after, before)
	}
}

// nodesOf sends a request in all conversations, and returns the nodes that respond.
func (tb *testbed) nodesOf(all []*fabric.Connection) (nodes []string) {
	tb.t.Helper()
	for _, one := range all {
		reply, err := one.Request(clientTimeout)
		if err != nil {
			tb.t.Errorf("request in a conversation: %v", err)
		}
		nodes = append(nodes, reply.Node)
	}
	return nodes
}

// open opens count conversations, some of them to node-2.
func (tb *testbed) open(network string, to netip.AddrPort, count int) []*fabric.Connection {
	tb.t.Helper()
	var all []*fabric.Connection
	onNode := 0
	for range count {
		one, err := tb.client.Open(network, to)
		must.Succeed(tb.t, err)
		tb.t.Cleanup(func() { _ = one.Close() })
		reply, err := one.Request(clientTimeout)
		must.Succeed(tb.t, err)
		if reply.Node == tb.nodes[1].Name {
			onNode++
		}
		all = append(all, one)
	}
	if onNode == 0 {
		tb.t.Errorf("none of %d conversations over %s goes to %s", count, network, tb.nodes[1].Name)
	}
	return all
}

const datagramManifests = `---
apiVersion: v1
kind: Service
metadata: {name: datagrams, namespace: default}
spec:
  clusterIP: %[1]s
  clusterIPs: [%[1]s]
  ports:
  - {name: udp, protocol: UDP, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: datagrams, namespace: default, labels: {kubernetes.io/service-name: datagrams}}
addressType: IPv4
ports:
- {name: udp, protocol: UDP, port: 8080}
endpoints:
- {addresses: ["%[2]s"], nodeName: node-2}
- {addresses: ["%[3]s"], nodeName: node-3}
- {addresses: ["%[4]s"], nodeName: node-4}
`

// TestAMaliciousTenant has a tenant with false Services and EndpointSlices: endpoints that do not exist, with the
// names of live nodes, of an unknown node, and of the client's own node; and a Service at a node's address and the port
// that is probed there. That neither ejects a node nor hides a failure.
func TestAMaliciousTenant(t *testing.T) {
	t.Parallel()
	traps := []netip.AddrPort{netip.MustParseAddrPort("10.96.0.66:80")}
	s := newPreparedTestbed(t, "enforce", func(s *testbed) {
		s.extraManifests = fmt.Sprintf(trapManifests, traps[0].Addr(), s.nodes[2].IPv4)
	})
	traps = append(traps, netip.AddrPortFrom(s.nodes[2].IPv4, 10256))
	var harm sync.WaitGroup
	defer harm.Wait()
	for _, trap := range traps {
		harm.Go(func() { s.load(trap, 40, 30*time.Second, time.Second) })
	}
	if all := s.load(web, 20, 20*time.Second, clientTimeout); all.failed > 0 {
		t.Errorf("%d of %d connections failed: %v", all.failed, all.made, all.errors)
	}
	s.expectNoEjection(s.proxy)
	s.expectOutcome("replied")
	s.proxy.Log.WaitFor(t, "a frontend is a probe target of nodes")
	s.drop(s.nodes[1].Namespace, poweredOff...)
	if all := s.load(web, 50, 5*time.Second, 3*clientTimeout); all.failed > 0 || all.waited == 0 {
		t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
	}
	s.expectEjected(s.nodes[1], 1)
}

// trapManifests are objects that a tenant may write.
const trapManifests = `---
apiVersion: v1
kind: Service
metadata: {name: trap, namespace: tenant}
spec:
  clusterIP: %[1]s
  clusterIPs: [%[1]s]
  externalIPs: [%[2]s]
  ports:
  - {name: tcp, protocol: TCP, port: 80}
  - {name: dials, protocol: TCP, port: 10256}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: trap, namespace: tenant, labels: {kubernetes.io/service-name: trap}}
addressType: IPv4
ports:
- {name: tcp, protocol: TCP, port: 8080}
- {name: dials, protocol: TCP, port: 10256}
endpoints:
- {addresses: ["192.0.2.7"], nodeName: node-1}
- {addresses: ["192.0.2.8"], nodeName: node-2}
- {addresses: ["192.0.2.9"], nodeName: node-3}
- {addresses: ["192.0.2.10"], nodeName: node-4}
- {addresses: ["192.0.2.11"], nodeName: nobody}
- {addresses: ["192.0.2.12"]}
`

// TestNothingElseProvesThatANodeLives has a failed node while other connections that seem to go there get replies.
// Neither replies to one client nor connections from before are a proof that the node is up.
func TestNothingElseProvesThatANodeLives(t *testing.T) {
	t.Parallel()
	busy := netip.MustParseAddrPort("10.96.0.13:80")
	// forgeReplies keeps dialling from one client, for which the node seems to respond.
	dialSecondClient := func(s *testbed, to netip.AddrPort) (stop func()) {
		var isOver atomic.Bool
		var dialling sync.WaitGroup
		dialling.Go(func() {
			for !isOver.Load() {
				s.loadFrom(s.clients[1:], to, 20, time.Second, time.Second)
			}
		})
		return func() { isOver.Store(true); dialling.Wait() }
	}
	for name, scene := range map[string]struct {
		prepare func(s *testbed)
		begin   func(s *testbed) (end func())
	}{
		"a pod replies to one client in place of the dead endpoint": {
			prepare: func(s *testbed) {
				must.Succeed(t, s.nodes[0].RouteVia(single(s.pods[1].IPv4), s.nodes[2].Namespace))
				s.nft(s.nodes[2].Namespace, fmt.Sprintf(`table ip forged { chain in { type nat hook prerouting priority -150;
					ip saddr %s ip daddr %s dnat to %s; }; }`, s.clients[1].IPv4, s.pods[1].IPv4, s.pods[2].IPv4))
			},
			begin: func(s *testbed) func() { return dialSecondClient(s, web) },
		},
		"a manual EndpointSlice has the node for an address that replies": {
			prepare: func(s *testbed) { s.extraManifests = s.oneEndpoint(busy.Addr(), s.pods[3].IPv4) },
			begin:   func(s *testbed) func() { return dialSecondClient(s, busy) },
		},
		"an endpoint with open connections is removed and added again": {
			prepare: func(s *testbed) { s.extraManifests = s.oneEndpoint(busy.Addr(), s.pods[1].IPv4) },
			begin: func(s *testbed) func() {
				for range 20 {
					for _, client := range s.clients {
						one, err := client.Open("tcp", busy)
						must.Succeed(s.t, err)
						s.t.Cleanup(func() { _ = one.Close() })
						_, err = one.Request(clientTimeout)
						must.Succeed(s.t, err)
					}
				}
				serveAt := func(endpoint netip.Addr) {
					s.extraManifests = s.oneEndpoint(busy.Addr(), endpoint)
					if err := s.writeObjects(); err != nil {
						s.t.Error(err)
					}
				}
				serveAt(s.pods[2].IPv4)
				// The endpoint comes back while the node is suspected.
				back := time.AfterFunc(1450*time.Millisecond, func() { serveAt(s.pods[1].IPv4) })
				return func() { back.Stop() }
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPreparedTestbed(t, "enforce", scene.prepare)
			end := scene.begin(s)
			s.drop(s.nodes[1].Namespace, poweredOff...)
			all := s.loadFrom(s.clients[:1], web, 50, 8*time.Second, 3*clientTimeout)
			end()
			if all.failed > 0 || all.waited == 0 {
				t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
			}
			s.expectEjected(s.nodes[1], 1)
			if proofs := s.metric("vicinity_reachability_suspicions_total", `outcome="flows_replied"`); proofs > 0 {
				t.Errorf("%v suspicions had outcome flows_replied, want none", proofs)
			}
		})
	}
}

// oneEndpoint returns a Service with one endpoint, which its EndpointSlice places on node-2.
func (tb *testbed) oneEndpoint(service, endpoint netip.Addr) string {
	return fmt.Sprintf(oneEndpointManifests, service, endpoint)
}

const oneEndpointManifests = `---
apiVersion: v1
kind: Service
metadata: {name: one, namespace: tenant}
spec:
  clusterIP: %[1]s
  clusterIPs: [%[1]s]
  ports:
  - {name: tcp, protocol: TCP, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: one, namespace: tenant, labels: {kubernetes.io/service-name: one}}
addressType: IPv4
ports:
- {name: tcp, protocol: TCP, port: 8080}
endpoints:
- {addresses: ["%[2]s"], nodeName: node-2}
`

// TestAnOverloadedNodeThatDies has an endpoint that drops six of ten SYNs for a while. A later failure of its node is
// still detected.
func TestAnOverloadedNodeThatDies(t *testing.T) {
	t.Parallel()
	s := newTestbed(t, "enforce")
	end := s.drop(s.pods[1].Namespace, "tcp dport 8080 tcp flags syn numgen random mod 10 < 6")
	s.load(web, 50, 20*time.Second, clientTimeout)
	end()
	s.expectNoEjection(s.proxy)
	s.expectOutcome("replied")
	s.drop(s.nodes[1].Namespace, poweredOff...)
	if all := s.load(web, 50, 6*time.Second, 3*clientTimeout); all.failed > 0 || all.waited == 0 {
		t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
	}
	s.expectEjected(s.nodes[1], 1)
}

// TestOneFamilyOfANodeIsDead checks that connections of that family go to other nodes, and those of the other family
// stay.
func TestOneFamilyOfANodeIsDead(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		dead, busy netip.AddrPort
		drop       string
	}{
		"IPv4": {web, web6, "meta protocol ip"},
		"IPv6": {web6, web, "icmpv6 type != { nd-neighbor-solicit, nd-neighbor-advert }"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t, "enforce")
			drop := []string{scene.drop}
			if scene.dead == web6 {
				drop = append(drop, "ip6 nexthdr != icmpv6")
			}
			s.drop(s.nodes[1].Namespace, drop...)
			var dialling sync.WaitGroup
			dialling.Go(func() {
				if all := s.load(scene.busy, 50, 8*time.Second, clientTimeout); all.failed > 0 || all.waited*10 > all.made {
					t.Errorf("%d of %d connections over the other family failed, %d waited: %v", all.failed, all.made, all.waited, all.errors)
				}
			})
			all := s.load(scene.dead, 50, 8*time.Second, 3*clientTimeout)
			dialling.Wait()
			if all.failed > 0 || all.waited == 0 {
				t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
			}
			s.expectEjected(s.nodes[1], 1)
			if unreachable := s.metric("vicinity_reachability_targets", `state="unreachable"`, `ip_family="`+name+`"`); unreachable != 1 {
				t.Errorf("%v nodes are unreachable over %s, want one", unreachable, name)
			}
			if proofs := s.metric("vicinity_reachability_suspicions_total", `outcome="flows_replied"`); proofs > 0 {
				t.Errorf("%v suspicions had outcome flows_replied because of the other family, want none", proofs)
			}
		})
	}
}

// TestAFullAcceptQueueEjectsNoNode stops the node's proxy and fills the accept queue of its port, while a policy denies
// the clients.
func TestAFullAcceptQueueEjectsNoNode(t *testing.T) {
	t.Parallel()
	s := newTestbed(t, "enforce")
	must.Succeed(t, s.proxies[1].Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = s.proxies[1].Signal(syscall.SIGCONT) })
	addr := netip.AddrPortFrom(s.nodes[1].IPv4, 10256)
	for full := false; !full; {
		conn, err := s.client.Dial("tcp", addr.String(), time.Second)
		if full = err != nil; !full {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	s.drop(s.nodes[1].Namespace, s.deniedClients())
	s.load(web, 50, 10*time.Second, time.Second)
	s.expectNoEjection(s.proxy)
	s.expectOutcome("replied")
}

// TestClientsWithAffinity covers clients with affinity to an endpoint on a node that is unreachable for a while. A client
// that connects in that time gets another endpoint, and keeps it. The affinity of the others remains.
func TestClientsWithAffinity(t *testing.T) {
	t.Parallel()
	const ports = 16
	var servicePorts, slicePorts strings.Builder
	for port := range ports { // each port has its own affinity
		fmt.Fprintf(&servicePorts, "  - {name: p%d, protocol: TCP, port: %d, targetPort: 8080}\n", port, 100+port)
		fmt.Fprintf(&slicePorts, "- {name: p%d, protocol: TCP, port: 8080}\n", port)
	}
	s := newPreparedTestbed(t, "enforce", func(s *testbed) {
		s.extraManifests = fmt.Sprintf(affinityManifests, servicePorts.String(), slicePorts.String(), s.pods[1].IPv4, s.pods[2].IPv4)
	})
	servers := func(ports ...int) (nodes []string) {
		for _, port := range ports {
			one, err := s.client.Open("tcp", netip.AddrPortFrom(netip.MustParseAddr("10.96.0.12"), uint16(100+port)))
			must.Succeed(t, err)
			reply, err := one.Request(clientTimeout)
			must.Succeed(t, err)
			must.Succeed(t, one.Close())
			nodes = append(nodes, reply.Node)
		}
		return nodes
	}
	var all []int
	for port := range ports {
		all = append(all, port)
	}
	before := servers(all...)
	end := s.drop(s.nodes[1].Namespace, poweredOff...)
	s.load(web, 50, 3*time.Second, clientTimeout)
	s.waitForUnreachable(1)
	during := servers(all[:ports/2]...)
	if slices.Contains(during, s.nodes[1].Name) || !slices.Contains(before[ports/2:], s.nodes[1].Name) {
		t.Errorf("affinity is to %v before the failure and to %v during it, so nothing was tested", before, during)
	}
	end()
	s.waitForUnreachable(0)
	if after, want := servers(all...), slices.Concat(during, before[ports/2:]); !slices.Equal(after, want) {
		t.Errorf("affinity is to %v, want %v", after, want)
	}
}

const affinityManifests = `---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: default}
spec:
  clusterIP: 10.96.0.12
  clusterIPs: [10.96.0.12]
  sessionAffinity: ClientIP
  ports:
%[1]s---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sticky, namespace: default, labels: {kubernetes.io/service-name: sticky}}
addressType: IPv4
ports:
%[2]sendpoints:
- {addresses: ["%[3]s"], nodeName: node-2}
- {addresses: ["%[4]s"], nodeName: node-3}
`
