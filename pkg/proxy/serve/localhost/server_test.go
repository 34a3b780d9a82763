//go:build linux

package localhost

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	web4 = "127.0.0.1:30080"
	web6 = "[::1]:30080"
)

func TestANodePortIsServedInBothFamilies(t *testing.T) {
	n := newNode(t, 100)
	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{
		n.backend(loopback4, nameBackend("four")), n.backend(loopback6, nameBackend("six")),
	}})
	n.waitForListeners(1, 1)
	n.expectReply(web4, "four")
	n.expectReply(web6, "six")
	n.expectRefused("127.0.0.2:30080")
	n.delete("web")
	n.waitForListeners(0, 0)
	n.expectRefused(web4)
	n.expectRefused(web6)
}

func TestPortsThatAreNotServed(t *testing.T) {
	for title, change := range map[string]func(*model.Service){
		"no node port":                           func(s *model.Service) { s.Ports[0].NodePort = 0 },
		"UDP":                                    func(s *model.Service) { s.Ports[0].Protocol = model.UDP },
		"SCTP":                                   func(s *model.Service) { s.Ports[0].Protocol = model.SCTP },
		"Local without an endpoint on this node": func(s *model.Service) { s.ExternalTrafficLocal = true },
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t, 100)
			backend := []netip.AddrPort{n.backend(loopback4, nameBackend("four"))}
			n.apply(service{name: "web", nodePort: 30080, endpoints: backend, change: change},
				service{name: "other", nodePort: 30081, endpoints: backend})
			n.waitForListeners(1, 0)
			n.expectReply("127.0.0.1:30081", "four")
			n.expectRefused(web4)
		})
	}
}

func TestAServiceWithoutEndpointsRefuses(t *testing.T) {
	n := newNode(t, 100)
	web := service{name: "web", nodePort: 30080}
	n.apply(web, service{name: "other", nodePort: 30081, endpoints: []netip.AddrPort{n.backend(loopback4, nameBackend("four"))}})
	n.waitForListeners(1, 0)
	n.expectRefused(web4)
	web.endpoints = []netip.AddrPort{n.backend(loopback4, nameBackend("here"))}
	n.apply(web)
	n.waitForListeners(2, 0)
	n.expectReply(web4, "here")
}

func TestLocalKeepsConnectionsOnTheNode(t *testing.T) {
	n := newNode(t, 100)
	n.apply(service{
		name: "web", nodePort: 30080, nodeName: "node-a", endpoints: []netip.AddrPort{n.backend(loopback4, nameBackend("here"))},
		change: func(s *model.Service) { s.ExternalTrafficLocal = true },
	})
	n.waitForListeners(1, 0)
	n.expectReply(web4, "here")
}

func TestEndpointsArePickedAndUpdated(t *testing.T) {
	n := newNode(t, 100)
	one, two, three := n.backend(loopback4, nameBackend("one")), n.backend(loopback4, nameBackend("two")),
		n.backend(loopback4, nameBackend("three"))
	web := service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{one, two}}
	n.apply(web)
	n.waitForListeners(1, 0)
	answers := map[string]int{}
	for range 60 {
		got, err := n.request(web4)
		if err != nil {
			t.Fatal(err)
		}
		answers[got]++
	}
	if answers["one"] == 0 || answers["two"] == 0 || len(answers) != 2 {
		t.Errorf("responses %v, want both endpoints", answers)
	}
	web.endpoints = []netip.AddrPort{three}
	n.apply(web)
	for range 10 { // another goroutine applies the change
		wait.Until(n.t, "a response of the new endpoint", func() bool { got, _ := n.request(web4); return got == "three" })
	}
	if n.events.count(LimitExceeded)+n.events.count(Unreachable) > 0 {
		t.Errorf("some connections failed: %v", n.events.outcomes)
	}
}

func TestAffinityTreatsLoopbackClientsAsOne(t *testing.T) {
	n := newNode(t, 100)
	web := service{name: "web", nodePort: 30080, change: func(s *model.Service) { s.AffinityTimeout = time.Hour }}
	for _, name := range []string{"one", "two", "three", "four"} {
		web.endpoints = append(web.endpoints, n.backend(loopback4, nameBackend(name)))
	}
	n.apply(web)
	n.waitForListeners(1, 0)
	first, err := n.request(web4)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		n.expectReply(web4, first)
	}
}

func TestPickerAffinity(t *testing.T) {
	addrPort := func(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
	a, b := addrPort("10.0.0.1:80"), addrPort("10.0.0.2:80")
	onB := []netip.AddrPort{b}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for title, test := range map[string]struct {
		then  target
		after time.Duration
		want  netip.AddrPort
	}{
		"a client stays within the timeout": {target{endpoints: []netip.AddrPort{a, b, b}, affinity: time.Minute}, time.Second, a},
		"a client stays with an endpoint that only keeps clients": {
			target{endpoints: onB, stickyOnly: []netip.AddrPort{a}, affinity: time.Minute}, 0, a,
		},
		"a client leaves a removed endpoint": {target{endpoints: onB, affinity: time.Minute}, 0, b},
		"affinity expires after the timeout": {target{endpoints: onB, stickyOnly: []netip.AddrPort{a},
			affinity: time.Minute}, time.Minute, b},
		"affinity ends when it is turned off": {target{endpoints: onB, stickyOnly: []netip.AddrPort{a}}, 0, b},
	} {
		t.Run(title, func(t *testing.T) {
			var p picker
			p.update(target{endpoints: []netip.AddrPort{a}, affinity: time.Minute})
			if got, _ := p.pick(start); got != a {
				t.Fatalf("got %v, want %v", got, a)
			}
			p.update(test.then)
			if got, ok := p.pick(start.Add(test.after)); got != test.want || !ok {
				t.Errorf("got %v, %v, want %v", got, ok, test.want)
			}
		})
	}
}

func TestHalfClose(t *testing.T) { inBothFamilies(t, halfClose) }

func halfClose(t *testing.T, f family) {
	t.Helper()
	n := newNode(t, 100)
	var lastData atomic.Pointer[string]
	n.apply(
		service{name: "client-closes-first", nodePort: 30080, endpoints: []netip.AddrPort{n.backend(f.loopback, func(c *net.TCPConn) {
			text, _ := io.ReadAll(c) // the client has closed its side, and still gets the response
			_, _ = fmt.Fprintf(c, "%d bytes", len(text))
		})}},
		service{name: "backend-closes-first", nodePort: 30081, endpoints: []netip.AddrPort{n.backend(f.loopback, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "that is all")
			_ = c.CloseWrite()
			text, _ := io.ReadAll(c)
			last := string(text)
			lastData.Store(&last)
		})}},
	)
	n.waitForFamilyListeners(f, 2)
	sender := n.dial(f.web())
	if _, err := sender.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := sender.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(sender); string(text) != "3145728 bytes" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	receiver := n.dial(f.other())
	if text, err := io.ReadAll(receiver); string(text) != "that is all" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := io.WriteString(receiver, "thank you"); err != nil {
		t.Fatal(err)
	}
	_ = receiver.Close()
	wait.Until(n.t, "the last data of a client", func() bool { last := lastData.Load(); return last != nil && *last == "thank you" })
	wait.Until(n.t, "all slots free again", func() bool { return n.freeConnections() == 100 })
}

func (n *node) freeConnections() int {
	n.server.limiter.mutex.Lock()
	defer n.server.limiter.mutex.Unlock()
	return n.server.limiter.free
}

func TestSlowReaderGetsAllDataAndBlocksNoOthers(t *testing.T) { inBothFamilies(t, slowReader) }

func slowReader(t *testing.T, f family) {
	t.Helper()
	n := newNode(t, 100)
	var sent atomic.Int64
	const size = 64 << 20
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{n.backend(f.loopback, func(c *net.TCPConn) {
		for rest := content; len(rest) > 0; {
			written, err := c.Write(rest[:1<<20])
			sent.Add(int64(written))
			if err != nil {
				return
			}
			rest = rest[1<<20:]
		}
	})}}, service{name: "other", nodePort: 30081, endpoints: []netip.AddrPort{n.backend(f.loopback, nameBackend("other"))}})
	n.waitForFamilyListeners(f, 2)
	slow := n.dial(f.web())
	if err := slow.SetReadBuffer(1 << 20); err != nil { // otherwise it could grow to 32 MiB
		t.Fatal(err)
	}
	wait.Until(n.t, "some data sent", func() bool { return sent.Load() > 0 })
	before := int64(-1)
	wait.Until(n.t, "a sender that waits for its reader", func() bool {
		defer func() { before = sent.Load() }()
		time.Sleep(100 * time.Millisecond)
		return sent.Load() == before
	})
	if sent.Load() == size { // the kernel's buffers take up to 40 MiB of it
		t.Error("all data was read from the backend although the client has read none")
	}
	n.expectReply(f.other(), "other")
	hash := sha256.New()
	if _, err := io.Copy(hash, slow); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(content); !bytes.Equal(hash.Sum(nil), want[:]) {
		t.Error("the client received other data than was sent")
	}
}

func TestUnavailableBackendCausesReset(t *testing.T) { inBothFamilies(t, unavailableBackend) }

func unavailableBackend(t *testing.T, f family) {
	t.Helper()
	n := newNode(t, 100)
	listener := n.listener(f.port(0))
	closed := netip.MustParseAddrPort(listener.Addr().String())
	_ = listener.Close()
	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{closed}})
	n.waitForFamilyListeners(f, 1)
	if text, err := n.request(f.web()); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %q, %v, want a reset", text, err)
	}
	if got := n.events.count(Unreachable); got != 1 {
		t.Errorf("%d connections are counted as unreachable, want 1", got)
	}
	wait.Until(n.t, "all slots free again", func() bool { return n.freeConnections() == 100 })
}

// TestUnresponsiveBackendCausesResetAfterTimeout: the timeout is much shorter than the kernel's, and no other
// connection is delayed.
func TestUnresponsiveBackendCausesResetAfterTimeout(t *testing.T) {
	inBothFamilies(t, unresponsiveBackend)
}

func unresponsiveBackend(t *testing.T, f family) {
	t.Helper()
	n := newNode(t, 100)
	unresponsive := n.backend(f.loopback, nameBackend("silent"))
	n.namespace.Load("table " + f.table + " silent {\n chain in {\n type filter hook input priority 0;\n" +
		fmt.Sprintf("tcp dport %d drop\n}\n}\n", unresponsive.Port()))
	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{unresponsive}},
		service{name: "other", nodePort: 30081, endpoints: []netip.AddrPort{n.backend(f.loopback, nameBackend("other"))}})
	n.waitForFamilyListeners(f, 2)
	client := n.dial(f.web())
	n.expectReply(f.other(), "other")
	if n.events.count(Unreachable) != 0 {
		t.Error("the connection attempt timed out too early")
	}
	if text, err := io.ReadAll(client); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %q, %v, want a reset", text, err)
	}
	if got := n.events.count(Unreachable); got != 1 {
		t.Errorf("%d connections are counted as unreachable, want 1", got)
	}
	wait.Until(n.t, "all slots free again", func() bool { return n.freeConnections() == 100 })
}

func TestBackendResetIsForwarded(t *testing.T) { inBothFamilies(t, backendReset) }

func backendReset(t *testing.T, f family) {
	t.Helper()
	n := newNode(t, 100)
	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{n.backend(f.loopback, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 4))
		reset(c)
	})}})
	n.waitForFamilyListeners(f, 1)
	client := n.dial(f.web())
	if _, err := io.WriteString(client, "ping"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(client); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %q, %v, want a reset", text, err)
	}
}

func TestAServiceHasNoMoreConnectionsThanItsLimit(t *testing.T) {
	inBothFamilies(t, connectionLimit)
}

func connectionLimit(t *testing.T, f family) {
	t.Helper()
	n := newNode(t, 10)
	var open atomic.Int64
	endpoints := []netip.AddrPort{n.backend(f.loopback, echoBackend(&open))}
	n.apply(service{name: "flooded", nodePort: 30080, endpoints: endpoints}, service{name: "other", nodePort: 30081, endpoints: endpoints})
	n.waitForFamilyListeners(f, 2)
	var first *net.TCPConn
	for i := range 5 {
		conn := n.dial(f.web())
		n.expectEcho(conn)
		if i == 0 {
			first = conn
		}
	}
	for range 20 {
		if conn, err := n.tryDial(f.web()); err == nil { // it may be reset before Dial returns
			n.expectClosed(conn)
		}
	}
	if got := [2]int{n.events.count(Forwarded), n.events.count(LimitExceeded)}; got != [2]int{5, 20} {
		t.Errorf("%d connections were forwarded, %d exceeded the limit, want 5 and 20", got[0], got[1])
	}
	n.expectEcho(n.dial(f.other()))
	_ = first.Close() // frees a slot
	wait.Until(n.t, "five open connections and five free slots", func() bool { return open.Load() == 5 && n.freeConnections() == 5 })
	n.expectEcho(n.dial(f.web()))
	if open.Load() != 6 {
		t.Errorf("%d connections are open, want 6", open.Load())
	}
}

func TestConnectionsLastUntilTheServiceIsDeleted(t *testing.T) {
	inBothFamilies(t, establishedConnections)
}

func establishedConnections(t *testing.T, f family) {
	t.Helper()
	var open atomic.Int64
	for title, end := range map[string]func(*node, []netip.AddrPort){
		"when it is deleted": func(n *node, _ []netip.AddrPort) { n.delete("web") },
		"when its port changes": func(n *node, endpoints []netip.AddrPort) {
			n.apply(service{name: "web", nodePort: 30090, endpoints: endpoints})
		},
		"when the server ends": func(n *node, _ []netip.AddrPort) { n.stop() },
		"when another Service has its port": func(n *node, endpoints []netip.AddrPort) {
			n.apply(service{name: "web"}, service{name: "api", nodePort: 30080, endpoints: endpoints})
		},
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t, 100)
			web := service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{n.backend(f.loopback, echoBackend(&open))}}
			n.apply(web)
			n.waitForFamilyListeners(f, 1)
			client := n.dial(f.web())
			n.expectEcho(client)
			endpoints := web.endpoints
			web.endpoints = []netip.AddrPort{n.backend(f.loopback, nameBackend("new"))} // established connections stay where they are
			n.apply(web)
			wait.Until(n.t, "a response of the new endpoint", func() bool { got, _ := n.request(f.web()); return got == "new" })
			n.expectEcho(client)
			web.endpoints = nil
			n.apply(web)
			n.waitForFamilyListeners(f, 0)
			n.expectEcho(client)
			end(n, endpoints)
			n.expectClosed(client)
			wait.Until(n.t, "no connection at the backend", func() bool { return open.Load() == 0 })
		})
	}
}

func TestServerRestart(t *testing.T) {
	n := newNode(t, 100)
	web := service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{n.backend(loopback4, nameBackend("four"))}}
	n.apply(web)
	n.waitForListeners(1, 0)
	for range 3 {
		n.expectReply(web4, "four")
		n.stop()
		n.expectRefused(web4)
		n.start(100)
		n.apply(web)
		n.waitForListeners(1, 0)
	}
	n.expectReply(web4, "four")
	if n.events.failureCount(model.IPv4) != 0 {
		t.Error("a server failed to listen on the port of the previous one")
	}
}

func TestPortInUseIsReportedAndServedOnceFree(t *testing.T) {
	n := newNode(t, 100)
	occupant := n.listener(web4)
	four := n.backend(loopback4, nameBackend("four"))
	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{four, n.backend(loopback6, nameBackend("six"))}},
		service{name: "other", nodePort: 30081, endpoints: []netip.AddrPort{four}})
	n.waitForListeners(1, 1)
	n.expectReply(web6, "six")
	n.expectReply("127.0.0.1:30081", "four")
	wait.Until(n.t, "one finding", func() bool { return len(n.events.currentFindings()) == 1 })
	const want = "Service shop/web: A node port is not served on this node's loopback address; retrying: " +
		"listen tcp4 127.0.0.1:30080: bind: address already in use"
	if got := n.events.currentFindings()[0]; got.String() != want || got.Code != model.LocalhostNodePortNotServed || !got.Local {
		t.Errorf("got %s %s, want %s", got.Code, got, want)
	}
	if n.events.failureCount(model.IPv4) == 0 || n.events.failureCount(model.IPv6) != 0 {
		t.Errorf("failures %v, want some only over IPv4", n.events.failed)
	}
	_ = occupant.Close()
	n.waitForListeners(2, 1)
	n.expectReply(web4, "four")
	if got := n.events.currentFindings(); len(got) != 0 {
		t.Errorf("findings %v, want none", got)
	}
}

// TestNeighboursDoNotReachLoopback: the server accepts no connection from another host even if the node translates its
// destination to loopback. A listener that is not bound to an interface does.
func TestNeighboursDoNotReachLoopback(t *testing.T) {
	n, neighbour := newNode(t, MaxConnections), netns.New(t)
	holder := neighbour.Command("sleep", "60")
	neighbour.Do(func() {
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	n.namespace.Exec("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", strconv.Itoa(holder.Process.Pid))
	n.namespace.Exec("ip", "addr", "add", "192.0.2.1/24", "dev", "near")
	n.namespace.Exec("ip", "link", "set", "near", "up")
	neighbour.Exec("ip", "addr", "add", "192.0.2.2/24", "dev", "far")
	neighbour.Exec("ip", "link", "set", "far", "up")
	n.namespace.Exec("sysctl", "-qw", "net.ipv4.conf.near.route_localnet=1")
	n.namespace.Load("table ip forwarding {\n chain in {\n type nat hook prerouting priority dstnat;\n" +
		"tcp dport { 30080, 30081 } dnat to 127.0.0.1\n}\n}\n")

	n.apply(service{name: "web", nodePort: 30080, endpoints: []netip.AddrPort{n.backend(loopback4, nameBackend("web"))}})
	n.waitForListeners(1, 0)
	n.expectReply("127.0.0.1:30080", "web")
	other := n.listener("127.0.0.1:30081")
	defer other.Close()
	for port, wantReached := range map[string]bool{"30080": false, "30081": true} {
		var err error
		neighbour.Do(func() {
			var opened net.Conn
			if opened, err = (&net.Dialer{Timeout: waitTimeout}).Dial("tcp", "192.0.2.1:"+port); err == nil {
				_ = opened.Close()
			}
		})
		if reached := err == nil; reached != wantReached {
			t.Errorf("a neighbour reaches port %s: %v (%v), want %v", port, reached, err, wantReached)
		}
	}
}
