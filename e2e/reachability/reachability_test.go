package reachability_test

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// probePorts matches all ports at which nodes are probed.
const probePorts = "tcp dport { 9, 10250, 10256 }"

// neighbourTimeout is the time within which a node must be ejected if nodes share a link and the failed one has no
// cable. The kernel tries to resolve an unknown neighbour for three seconds. Then all waiting IPv6 clients get "no
// route to host", and their connection attempts end at once. They send a SYN each second: one of them must come between
// the ejection and that moment.
const neighbourTimeout = 1800 * time.Millisecond

// TestNewConnectionsAvoidADeadNode makes one of three nodes with endpoints fail for a while, by dropping its packets or
// by unplugging its cable. A client dials a hundred times a second over either family, and no client with a long enough
// timeout fails. Five seconds are enough unless the machine stalls, so the log has the number of clients that waited
// longer.
func TestNewConnectionsAvoidADeadNode(t *testing.T) {
	t.Parallel()
	for _, failure := range []struct {
		name string
		to   netip.AddrPort
		drop []string
	}{
		{"dropped packets, IPv4", web, poweredOff},
		{"dropped packets, IPv6", web6, poweredOff},
		{"unplugged cable, IPv4", web, unpluggedLink},
		{"unplugged cable, IPv6", web6, unpluggedLink},
	} {
		t.Run(failure.name, func(t *testing.T) {
			t.Parallel()
			s := newTestbed(t, "enforce")
			dead, endpoint := s.nodes[1], s.pods[1].IPv4
			if failure.to == web6 {
				endpoint = s.pods[1].IPv6
			}
			end := s.drop(dead.Namespace, failure.drop...)
			var ejectedAfter time.Duration
			var watching sync.WaitGroup
			watching.Go(func() {
				began := time.Now()
				s.waitForUnreplied(true)
				s.waitForUnreachable(1)
				ejectedAfter = time.Since(began)
				s.expectExplained(dead, endpoint)
			})
			all := s.load(failure.to, 100, 10*time.Second, 3*clientTimeout)
			watching.Wait()
			end()
			restoredAfter := s.waitForUnreachable(0)
			s.waitForUnreplied(false)
			t.Logf("%d connections: %d failed %v, %d waited, the longest %v; ejected after %v, restored after %v", all.made, all.failed, all.errors,
				all.waited, all.maxDuration, ejectedAfter, restoredAfter)
			forgiven := 0
			if &failure.drop[0] == &unpluggedLink[0] && ejectedAfter > neighbourTimeout {
				forgiven = all.errors[unix.EHOSTUNREACH.Error()]
			}
			if all.failed > forgiven {
				t.Errorf("%d of %d connections failed: %v", all.failed, all.made, all.errors)
			}
			if all.waited == 0 {
				t.Error("no connection waited, so the node did not fail")
			}
			s.expectEjected(dead, 0)
		})
	}
}

// TestConnectionsFailWithoutFailureDetection makes the same failure without failure detection, and logs the number of
// connections that fail.
func TestConnectionsFailWithoutFailureDetection(t *testing.T) {
	t.Parallel()
	s := newTestbed(t, "off")
	end := s.drop(s.nodes[1].Namespace, poweredOff...)
	defer end()
	all := s.load(web, 100, 5*time.Second, clientTimeout)
	t.Logf("%d of %d connections failed", all.failed, all.made)
	if all.failed*4 < all.made {
		t.Errorf("%d of %d connections failed, want more than a quarter", all.failed, all.made)
	}
}

// TestNoOtherNodeIsEjected checks that denied clients, an interruption of this node's own network, and connection
// attempts that are dropped on their path eject no node.
func TestNoOtherNodeIsEjected(t *testing.T) {
	t.Parallel()
	const period = 20 * time.Second
	s := newTestbed(t, "enforce")
	for _, scene := range []struct {
		name  string
		begin func() (end func())
		sure  string // the expected outcome of suspicions
	}{
		{
			name: "this node's network fails for 8 s", sure: "isolated",
			begin: func() func() {
				end := s.drop(s.nodes[0].Namespace, poweredOff...)
				back := time.AfterFunc(8*time.Second, end)
				return func() { back.Stop() }
			},
		},
		{
			name: "SYNs are dropped while other connections get replies", sure: "flows_replied",
			begin: func() func() {
				return s.drop(s.nodes[1].Namespace, probePorts, "tcp dport 8080 tcp flags syn numgen random mod 2 == 0")
			},
		},
		{
			name: "a firewall closes the port of the node's proxy, and a policy denies the clients", sure: "replied",
			begin: func() func() {
				return s.drop(s.nodes[1].Namespace, "tcp dport 10256", s.deniedClients())
			},
		},
		{
			name: "a policy denies the client", sure: "replied",
			begin: func() func() { return s.drop(s.nodes[1].Namespace, s.deniedClients()) },
		},
	} {
		t.Run(scene.name, func(t *testing.T) {
			before := s.metric("vicinity_reachability_suspicions_total", `outcome="`+scene.sure+`"`)
			end := scene.begin()
			// The load continues for a while after the scene: without connections, nothing could prove that a node is healthy.
			time.AfterFunc(period, end)
			all := s.load(web, 50, period+3*time.Second, time.Second)
			t.Logf("%d of %d connections failed", all.failed, all.made)
			s.expectNoEjection(s.proxy)
			if s.metric("vicinity_reachability_suspicions_total", `outcome="`+scene.sure+`"`) == before {
				t.Errorf("no suspicion had outcome %s, so nothing was tested", scene.sure)
			}
		})
	}
}

// TestUnrepliedConnectionsAreCounted checks that vicinity_conntrack_unreplied_entries counts exactly the connections
// that a policy drops, until they get a reply.
func TestUnrepliedConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	const count = 30
	s := newTestbed(t, "observe")
	end := s.drop(s.nodes[1].Namespace, "tcp dport 8080 ip saddr "+s.client.IPv4.String())
	var replied, failed atomic.Int32
	var dialling sync.WaitGroup
	for range count { // a third of them to the pod that drops them
		dialling.Go(func() {
			conn, err := s.client.Dial("tcp", web.String(), wait.Timeout)
			if err != nil {
				failed.Add(1)
				return
			}
			replied.Add(1)
			_ = conn.Close()
		})
	}
	wait.Until(t, "the metric equals the number of waiting connection attempts", func() bool {
		waiting := count - replied.Load() - failed.Load()
		return waiting > 0 && waiting < count && s.metric("vicinity_conntrack_unreplied_entries") == float64(waiting)
	})
	end()
	dialling.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d connection attempts failed although the drop rule was removed", failed.Load(), count)
	}
	wait.Until(t, "no unreplied connection", func() bool { return s.metric("vicinity_conntrack_unreplied_entries") == 0 })
}
