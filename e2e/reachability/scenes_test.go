package reachability_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestADeadNodeThatCannotBeToldFromALivingOneStays: where dials say nothing of a node, all is as without them, though nobody
// answers on it any more.
func TestADeadNodeThatCannotBeToldFromALivingOneStays(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		prepare func(s *town)
		outcome string // of the suspicions that must have been there
	}{
		"a CNI drops dials at the node's port from the beginning": {prepare: func(s *town) {
			s.drop(s.nodes[1].Namespace, "tcp dport 10256")
			s.silent = 1
		}},
		"another machine answers at the address that the Node has, such as a gateway with NAT": {prepare: func(s *town) {
			s.said[1] = s.nodes[2].IPv4
		}, outcome: "answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOddTown(t, "avoid", scene.prepare)
			if s.silent == 0 {
				s.drop(s.nodes[1].Namespace, silence...)
			} else {
				s.drop(s.pods[1].Namespace, silence...)
			}
			all := s.load(web, 50, 10*time.Second, time.Second)
			if all.failed*4 < all.made {
				t.Errorf("%d of %d connections failed: the node is not dead", all.failed, all.made)
			}
			s.expectNoVerdict(s.proxy)
			if scene.outcome != "" {
				s.expectOutcome(scene.outcome)
			}
			if never := s.metric("vicinity_watched_nodes", `answers="never"`); never != float64(s.silent) {
				t.Errorf("%v nodes never answered, want %d", never, s.silent)
			}
		})
	}
}

// TestANodeBehindAGateway is dialled at the gateway's address, which hands its port of health checks over. It is judged when it
// is dead, though the gateway lives, and not before.
func TestANodeBehindAGateway(t *testing.T) {
	t.Parallel()
	var hidden *fabric.Node
	s := newOddTown(t, "avoid", func(s *town) {
		gateway, err := s.network.AddNode("gateway")
		must.Succeed(t, err)
		hidden = s.nodes[1]
		s.nft(gateway.Namespace, fmt.Sprintf(`table ip nat {
			chain in { type nat hook prerouting priority dstnat; tcp dport 10256 dnat to %s; }
			chain out { type nat hook postrouting priority srcnat; ip daddr %[1]s masquerade; }
		}`, hidden.IPv4))
		must.Succeed(t, s.nodes[0].RouteVia(single(s.pods[1].IPv4), gateway.Namespace))
		s.drop(hidden.Namespace, "ip saddr "+s.nodes[0].IPv4.String()) // there is no other way to it
		s.said[1] = gateway.IPv4
	})
	s.drop(s.pods[1].Namespace, "ip saddr "+s.client.IPv4.String())
	s.load(web, 50, 6*time.Second, time.Second)
	s.expectNoVerdict(s.proxy)
	s.expectOutcome("answered")
	must.Succeed(t, hidden.Unplug())
	s.load(web, 50, 3*time.Second, time.Second)
	s.expectJudged(hidden, 1)
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// TestWaysThatAreNotTheSameThereAndBack: packets to a node go through another one, and answers come straight. Where that one
// drops them, the node is unreachable from here, and from nowhere else.
func TestWaysThatAreNotTheSameThereAndBack(t *testing.T) {
	t.Parallel()
	s := newOddTown(t, "avoid", func(s *town) {
		for _, to := range []netip.Addr{s.nodes[1].IPv4, s.pods[1].IPv4} {
			must.Succeed(t, s.nodes[0].RouteVia(single(to), s.nodes[2].Namespace))
		}
	})
	if all := s.load(web, 50, 6*time.Second, patient); all.failed > 0 {
		t.Errorf("%d of %d connections failed: %v", all.failed, all.made, all.errors)
	}
	s.expectNoVerdict(s.proxy)
	s.drop(s.nodes[2].Namespace, "ip daddr { "+s.nodes[1].IPv4.String()+", "+s.pods[1].IPv4.String()+" }")
	if all := s.load(web, 50, 6*time.Second, 3*patient); all.failed > 0 || all.waited == 0 {
		t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
	}
	s.expectJudged(s.nodes[1], 1)
	for _, other := range s.proxies[1:] {
		s.expectNoVerdict(other)
	}
}

// TestDelayAndLoss: packets to and from a node take 400 ms, and a fifth of them is lost, each way. That is no death, and hides
// none.
func TestDelayAndLoss(t *testing.T) {
	t.Parallel()
	for name, fromTheBeginning := range map[string]bool{"from the beginning": true, "all of a sudden": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var way *fabric.LongWay
			s := newOddTown(t, "avoid", func(s *town) {
				way = s.takeLongWay(1)
				if fromTheBeginning { // without loss: a first dial that is lost is made again only a minute later
					way.Worsen(400*time.Millisecond, 0)
				}
			})
			way.Worsen(400*time.Millisecond, 0.2)
			all := s.load(web, 20, 30*time.Second, patient)
			t.Logf("%d connections: %d failed %v, %d waited, the longest %v; on their way %d packets were lost", all.made, all.failed, all.errors,
				all.waited, all.longest, way.Lost())
			s.expectNoVerdict(s.proxy)
			s.expectOutcome("answered", "flows_answered")
			s.drop(s.nodes[1].Namespace, silence...)
			s.load(web, 20, 3*time.Second, time.Second)
			s.expectJudged(s.nodes[1], 1)
		})
	}
}

// TestANodeThatFlaps is judged a few times, only while it is dead, and is back once it has answered for a while.
func TestANodeThatFlaps(t *testing.T) {
	t.Parallel()
	s := newTown(t, "avoid")
	var load sync.WaitGroup
	load.Go(func() { s.load(web, 50, time.Minute, time.Second) })
	for range 6 {
		end := s.drop(s.nodes[1].Namespace, silence...)
		time.Sleep(5 * time.Second)
		before := len(verdicts(s.proxy))
		end()
		time.Sleep(5 * time.Second)
		if after := len(verdicts(s.proxy)); after != before {
			t.Error("it was judged while it answered")
		}
	}
	load.Wait()
	s.expectJudged(s.nodes[1], 0)
	if judged := verdicts(s.proxy); len(judged) > 3 {
		t.Errorf("%d verdicts in a minute, want at most 3", len(judged))
	}
}

// TestOpenConnectionsStayAndDatagramsGoElsewhere: connections that are open when their node is judged go on when it is back.
// Whoever sends datagrams to it is served by another one at once.
func TestOpenConnectionsStayAndDatagramsGoElsewhere(t *testing.T) {
	t.Parallel()
	udp := netip.MustParseAddrPort("10.96.0.11:80")
	s := newOddTown(t, "avoid", func(s *town) {
		s.more = fmt.Sprintf(datagramManifests, udp.Addr(), s.pods[1].IPv4, s.pods[2].IPv4, s.pods[3].IPv4)
	})
	connections, datagrams := s.open("tcp", web, 200), s.open("udp", udp, 30)
	end := s.drop(s.nodes[1].Namespace, silence...)
	s.load(web, 50, 3*time.Second, patient)
	s.awaitUnreachable(1)
	for _, one := range datagrams {
		wait.Success(t, "datagrams go elsewhere", func() error {
			_, err := one.Ask(time.Second)
			return err
		})
	}
	end()
	s.expectJudged(s.nodes[1], 0)
	for _, one := range connections {
		if _, err := one.Ask(3 * patient); err != nil {
			t.Errorf("a connection that was open all the time: %v", err)
		}
	}
}

// open begins so many conversations, and has some of them lead to node-2.
func (s *town) open(network string, to netip.AddrPort, count int) []*fabric.Conversation {
	s.t.Helper()
	var all []*fabric.Conversation
	there := 0
	for range count {
		one, err := s.client.Open(network, to)
		must.Succeed(s.t, err)
		s.t.Cleanup(func() { _ = one.Close() })
		reply, err := one.Ask(patient)
		must.Succeed(s.t, err)
		if reply.Node == s.nodes[1].Name {
			there++
		}
		all = append(all, one)
	}
	if there == 0 {
		s.t.Errorf("none of %d conversations over %s leads to %s", count, network, s.nodes[1].Name)
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

// TestATenantWhoMeansHarm has Services and EndpointSlices in which nothing is true: endpoints that are holes, under the names of
// nodes that live, of nobody, and of the client's own node, and a Service at a node's address and the port that is dialled there.
// Nobody is judged for it, and it hides no death.
func TestATenantWhoMeansHarm(t *testing.T) {
	t.Parallel()
	traps := []netip.AddrPort{netip.MustParseAddrPort("10.96.0.66:80")}
	s := newOddTown(t, "avoid", func(s *town) {
		s.more = fmt.Sprintf(trapManifests, traps[0].Addr(), s.nodes[2].IPv4)
		s.silent = 1 // whoever dialled it would dial the tenant
	})
	traps = append(traps, netip.AddrPortFrom(s.nodes[2].IPv4, 10256))
	var harm sync.WaitGroup
	defer harm.Wait()
	for _, trap := range traps {
		harm.Go(func() { s.load(trap, 40, 30*time.Second, time.Second) })
	}
	if all := s.load(web, 20, 20*time.Second, patient); all.failed > 0 {
		t.Errorf("%d of %d connections failed: %v", all.failed, all.made, all.errors)
	}
	s.expectNoVerdict(s.proxy)
	s.expectOutcome("answered")
	s.drop(s.nodes[1].Namespace, silence...)
	if all := s.load(web, 50, 5*time.Second, 3*patient); all.failed > 0 || all.waited == 0 {
		t.Errorf("%d of %d connections failed, and %d waited: %v", all.failed, all.made, all.waited, all.errors)
	}
	s.expectJudged(s.nodes[1], 1)
}

// trapManifests are what a tenant may write.
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
