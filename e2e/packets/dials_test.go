package packets_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	// dialTimeout is the timeout of clients that should reach the endpoint that takes over. Without cleanup, their
	// connection attempts hang for more than two minutes.
	dialTimeout = fabric.Timeout
	// failingDialTimeout is the timeout of clients with hanging connection attempts.
	failingDialTimeout = 5 * time.Second
)

// staleEntryCleanup counts the stale entries that are deleted on a node.
type staleEntryCleanup struct {
	t       *testing.T
	mutex   sync.Mutex
	deleted map[model.Protocol]int
}

// startCleanup deletes stale entries of a node's connection attempts, as its daemon does, until the test ends.
func startCleanup(t *testing.T, n *node) *staleEntryCleanup {
	t.Helper()
	return startCleanupOf(t, n, n.flows)
}

// startCleanupOf is startCleanup with another table than the node's.
func startCleanupOf(t *testing.T, n *node, table conntrack.Table) *staleEntryCleanup {
	t.Helper()
	c := &staleEntryCleanup{t: t, deleted: map[model.Protocol]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		conntrackgc.NewReconciler(conntrack.NewDumpScheduler(table, nil), n.serviceIndex, n.routes.IsLocal).Run(ctx, c.record)
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

func (c *staleEntryCleanup) record(done conntrackgc.CleanupResult, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for protocol, n := range done.Unreplied {
		c.deleted[protocol] += n
	}
	if err != nil {
		c.t.Errorf("clean up stale entries: %v", err)
	}
}

// waitFor waits until at least the given number of entries is counted. They are counted after a cleanup, and their
// clients connect earlier.
func (c *staleEntryCleanup) waitFor(protocol model.Protocol, dials int) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("%d stale %s entries deleted", dials, protocol), func() bool { return c.count(protocol) >= dials })
}

func (c *staleEntryCleanup) count(protocol model.Protocol) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.deleted[protocol]
}

// blackhole makes a pod neither reply nor send: its connections end without a FIN.
func blackhole(t *testing.T, p *pod) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "nft", "-f", "-")
	rules := "table inet silent {\n"
	for _, hook := range []string{"prerouting", "output"} {
		rules += fmt.Sprintf("chain %s { type filter hook %[1]s priority -400; meta l4proto != ipv6-icmp drop; }\n", hook)
	}
	command.Stdin = strings.NewReader(rules + "}\n")
	if output, err := p.Run(command); err != nil {
		t.Fatalf("blackhole %s: %v: %s", p.Name, err, output)
	}
}

// addUnresponsive adds a server that never replies.
func (c *cluster) addUnresponsive(n *node) *pod {
	c.t.Helper()
	added := c.addServer(n, "silent")
	blackhole(c.t, added)
	return added
}

// waitForDials waits until conntrack has the given number of unreplied entries.
func waitForDials(t *testing.T, n *node, want int) {
	t.Helper()
	wait.Equal(t, "unreplied entries", want, func() (unreplied int) {
		for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
			filter := conntrack.Filter{Protocol: protocol, Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}
			_, err := n.flows.Dump(t.Context(), filter, func(*conntrack.Entry) bool { unreplied++; return true })
			must.Succeed(t, err)
		}
		return unreplied
	})
}

// dials are the sockets of pending TCP connections.
type dials []int

// dialMany starts many connection attempts at once.
func dialMany(t *testing.T, from *fabric.Namespace, to netip.AddrPort, n int) dials {
	t.Helper()
	var fds dials
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
	err := from.Do(func() error {
		for range n {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != unix.EINPROGRESS {
				return fmt.Errorf("connect: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fds
}

// isReady waits for events on a socket, and repeats the wait if a signal of the Go runtime interrupts it.
func isReady(fd int, events int16, timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); ; {
		poll := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(poll, max(0, int(time.Until(deadline).Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return n == 1 && err == nil
		}
	}
}

// connected waits until the given time and returns the number of established connections.
func (d dials) connected(deadline time.Time) (n int) {
	for _, fd := range d {
		if !isReady(fd, unix.POLLOUT, time.Until(deadline)) {
			continue
		}
		if code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code == 0 {
			n++
		}
	}
	return n
}

// TestPendingDialsReachTheReplacementEndpoint dials an endpoint that does not reply a thousand times, and replaces
// the endpoint. Without scans of conntrack all attempts hang.
func TestPendingDialsReachTheReplacementEndpoint(t *testing.T) {
	const clients = 1000
	for name, cleans := range map[string]bool{"with cleanup": true, "without cleanup": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			node := c.nodes[0]
			unresponsive, alive, client := c.addUnresponsive(node), c.addServer(node, "alive"), c.addPod(node, "client")
			c.apply(service().Merge(endpoints(unresponsive)))
			var cleanup *staleEntryCleanup
			if cleans {
				cleanup = startCleanup(t, node)
			}
			pending := dialMany(t, client.Namespace, netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort), clients)
			waitForDials(t, node, clients)
			c.apply(endpoints(alive))
			if !cleans {
				if got := pending.connected(time.Now().Add(failingDialTimeout)); got != 0 {
					t.Errorf("%d of %d clients connected without cleanup", got, clients)
				}
				return
			}
			if got := pending.connected(time.Now().Add(dialTimeout)); got != clients {
				t.Errorf("%d of %d clients connected", got, clients)
			}
			cleanup.waitFor(model.TCP, clients)
		})
	}
}

// TestDialsToEveryFrontendReachTheReplacementEndpoint dials from a pod, the node and a machine outside the cluster,
// over every frontend, in both families.
func TestDialsToEveryFrontendReachTheReplacementEndpoint(t *testing.T) {
	for name, edit := range map[string]func(*model.Service){
		"no restrictions":     func(*model.Service) {},
		"affinity":            affinity(affinityHour),
		"both policies Local": func(s *model.Service) { internalLocal(s); externalLocal(s) },
		"topology keys":       topologyKeys("topology.kubernetes.io/zone"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			node := c.nodes[0]
			unresponsive, alive := c.addUnresponsive(node), c.addServer(node, "alive")
			clients := []*fabric.Namespace{c.addPod(node, "client").Namespace, node.Namespace, c.addHost("host", node)}
			c.apply(service(web.withEverything, edit).Merge(endpoints(unresponsive)))
			cleanup := startCleanup(t, node)
			to := overNetworks(web.paths(node, allKinds...), "tcp", "sctp")
			var requests sync.WaitGroup
			for _, from := range clients {
				for _, path := range to {
					requests.Go(func() {
						reply, err := from.Request(path.network, path.addr, dialTimeout)
						if err != nil || reply.Pod != "alive" {
							t.Errorf("%s from %s: reply from %q, error %v", path, from.Name, reply.Pod, err)
						}
					})
				}
			}
			waitForDials(t, node, len(clients)*len(to))
			c.apply(endpoints(alive))
			requests.Wait()
			each := len(clients) * len(to) / 2
			cleanup.waitFor(model.TCP, each)
			cleanup.waitFor(model.SCTP, each)
		})
	}
}

// TestDialsToTheLastEndpointAreRefused removes the last endpoint without a replacement.
func TestDialsToTheLastEndpointAreRefused(t *testing.T) {
	c := newCluster(t, 1)
	node := c.nodes[0]
	unresponsive, client := c.addUnresponsive(node), c.addPod(node, "client")
	c.apply(service().Merge(endpoints(unresponsive)))
	startCleanup(t, node)
	refusals := make(chan error)
	go func() {
		_, err := client.Request("tcp", netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort), dialTimeout)
		refusals <- checkRefused(err)
	}()
	waitForDials(t, node, 1)
	c.apply(endpoints())
	if err := <-refusals; err != nil {
		t.Error(err)
	}
}

// TestDialsTranslatedByOtherProgramsAreKept covers another program that translates to one of our endpoints, which is
// then removed.
func TestDialsTranslatedByOtherProgramsAreKept(t *testing.T) {
	c := newCluster(t, 1)
	node := c.nodes[0]
	unresponsive, alive, client := c.addUnresponsive(node), c.addServer(node, "alive"), c.addPod(node, "client")
	c.apply(service().Merge(endpoints(unresponsive)))
	cleanup := startCleanup(t, node)
	foreign := netip.MustParseAddr("192.0.2.7")
	addForeignDNAT(t, node, []path{{"tcp", netip.AddrPortFrom(foreign, 80)}}, unresponsive)
	dialMany(t, client.Namespace, netip.AddrPortFrom(foreign, 80), 20)
	ownDials := dialMany(t, client.Namespace, netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort), 20)
	waitForDials(t, node, 40)
	before := idsOf(t, node, foreign)
	c.apply(endpoints(alive))
	if got := ownDials.connected(time.Now().Add(dialTimeout)); got != 20 {
		t.Errorf("%d of 20 clients of our Service connected", got)
	}
	cleanup.waitFor(model.TCP, 20)
	if after := idsOf(t, node, foreign); len(before) != 20 || !sameIDs(before, after) || cleanup.count(model.TCP) != 20 {
		t.Errorf("of %d foreign entries, %d remain; %d stale entries were deleted, want 20", len(before), len(after), cleanup.count(model.TCP))
	}
}

// idsOf returns the status of the entries of connections to an address, by ID.
func idsOf(t *testing.T, n *node, origDst netip.Addr) map[uint32]conntrack.Status {
	t.Helper()
	ids := map[uint32]conntrack.Status{}
	_, err := n.flows.Dump(t.Context(), conntrack.Filter{Protocol: model.TCP}, func(e *conntrack.Entry) bool {
		if e.OrigDst().Addr() == origDst {
			ids[e.ID] = e.Status
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func sameIDs(before, after map[uint32]conntrack.Status) bool {
	for id := range before {
		if _, exists := after[id]; !exists {
			return false
		}
	}
	return len(before) > 0
}

// TestEstablishedConnectionsSurviveTheDeletionOfStaleEntries has two thousand connections to an endpoint that is
// removed a hundred times, and as many to another endpoint.
func TestEstablishedConnectionsSurviveTheDeletionOfStaleEntries(t *testing.T) {
	c := newCluster(t, 1)
	node := c.nodes[0]
	leaving, unresponsive, alive := c.addServer(node, "leaving"), c.addUnresponsive(node), c.addServer(node, "alive")
	client := c.addPod(node, "client")
	to := netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort)
	c.apply(service().Merge(endpoints(leaving)))
	open := dialMany(t, client.Namespace, to, 2000)
	if got := open.connected(time.Now().Add(dialTimeout)); got != 2000 {
		t.Fatalf("%d of 2000 clients connected", got)
	}
	before := idsOf(t, node, to.Addr())
	cleanup := startCleanup(t, node)
	c.apply(endpoints(unresponsive))
	pending := dialMany(t, client.Namespace, to, 100)
	waitForDials(t, node, 100)
	c.apply(endpoints(alive))
	if got := pending.connected(time.Now().Add(dialTimeout)); got != 100 {
		t.Errorf("%d of 100 clients connected", got)
	}
	cleanup.waitFor(model.TCP, 100)
	if after := idsOf(t, node, to.Addr()); len(before) != 2000 || !sameIDs(before, after) {
		t.Errorf("some of %d entries of established connections were deleted", len(before))
	}
	replies := 0
	for _, fd := range open {
		if _, err := unix.Write(fd, []byte("GET / HTTP/1.1\r\nHost: web\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if !isReady(fd, unix.POLLIN, fabric.Timeout) {
			continue
		}
		if n, err := unix.Read(fd, make([]byte, 4096)); err == nil && n > 0 {
			replies++
		}
	}
	if replies != 2000 {
		t.Errorf("%d of 2000 established connections got a response", replies)
	}
}

// TestAPortOfAConnectionThatWasResetIsUsedAgain covers an endpoint that resets a connection, is removed, and then never
// replies. Conntrack sends the next connection from the same port there, too, until the first entry is deleted.
func TestAPortOfAConnectionThatWasResetIsUsedAgain(t *testing.T) {
	for name, cleans := range map[string]bool{"with cleanup": true, "without cleanup": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			node := c.nodes[0]
			leaving := &pod{Pod: c.addPod(node, "leaving"), zone: "zone-of-node-1"}
			alive, client := c.addServer(node, "alive"), c.addPod(node, "client")
			listener, err := leaving.Listen("tcp4", fmt.Sprint(":", podPort))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			to := netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort)
			c.apply(service().Merge(endpoints(leaving)))
			// The kernel itself deletes the entry of a reset connection after ten seconds, which is too short for this test.
			must.Succeed(t, node.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_close", "600"))
			if cleans {
				// As if the proxy had run for that long.
				node.serviceIndex.Snapshot().RemovalsRecordedSince = time.Now().Add(-conntrackgc.StaleEntryWindow)
				startCleanup(t, node)
			}
			first := startDialFrom(t, client.Namespace, 20_000, to)
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil { // a reset
				t.Fatal(err)
			}
			if !isReady(first, unix.POLLIN, fabric.Timeout) {
				t.Fatal("the connection was not reset")
			}
			_ = unix.Close(first)
			blackhole(t, leaving)
			c.apply(endpoints(alive))
			timeout := failingDialTimeout
			if cleans {
				wait.Until(t, "the entry of the first connection is deleted", func() bool { return len(idsOf(t, node, to.Addr())) == 0 })
				timeout = dialTimeout
			}
			again := dials{startDialFrom(t, client.Namespace, 20_000, to)}
			defer func() { _ = unix.Close(again[0]) }()
			if got := again.connected(time.Now().Add(timeout)); (got == 1) != cleans {
				t.Errorf("with cleanup %t, %d connections were established from the same port", cleans, got)
			}
		})
	}
}

// startDialFrom starts a connection attempt from the given port.
func startDialFrom(t *testing.T, from *fabric.Namespace, port int, to netip.AddrPort) (fd int) {
	t.Helper()
	err := from.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
			return err
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestARollingRestartOfUnresponsivePodsLosesNoDial replaces thirty pods one after the other. Each one ends a while
// before its EndpointSlice is updated.
func TestARollingRestartOfUnresponsivePodsLosesNoDial(t *testing.T) {
	for name, cleans := range map[string]bool{"with cleanup": true, "without cleanup": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			node := c.nodes[0]
			var pods []*pod
			for i := range 30 {
				pods = append(pods, c.addServer(node, fmt.Sprintf("old-%d", i)))
			}
			next := make([]*pod, 30)
			for i := range next {
				next[i] = c.addServer(node, fmt.Sprintf("new-%d", i))
			}
			client := c.addPod(node, "client")
			c.apply(service().Merge(endpoints(pods...)))
			timeout := failingDialTimeout
			if cleans {
				startCleanup(t, node)
				timeout = dialTimeout
			}
			stop := make(chan struct{})
			to := netip.AddrPortFrom(web.addr(model.ClusterIP, model.IPv4), servicePort)
			failed, attempts := keepRequesting(client.Namespace, to, timeout, stop)
			for i := range pods {
				blackhole(t, pods[i])
				time.Sleep(200 * time.Millisecond)
				pods[i] = next[i]
				c.apply(endpoints(pods...))
			}
			close(stop)
			failures, all := <-failed, <-attempts
			t.Logf("%d of %d connection attempts failed", failures, all)
			if cleans && failures > 0 || !cleans && failures == 0 {
				t.Errorf("with cleanup %t, %d of %d connection attempts failed", cleans, failures, all)
			}
		})
	}
}

// keepRequesting dials two hundred times a second until stopped, and returns the numbers of failures and attempts.
func keepRequesting(from *fabric.Namespace, to netip.AddrPort, timeout time.Duration, stop <-chan struct{}) (failed, all <-chan int) {
	failures, attempts := make(chan int, 1), make(chan int, 1)
	go func() {
		var requests sync.WaitGroup
		var mutex sync.Mutex
		n, failedCount := 0, 0
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				requests.Wait()
				failures <- failedCount
				attempts <- n
				return
			case <-ticker.C:
			}
			n++
			requests.Go(func() {
				conn, err := from.Dial("tcp", to.String(), timeout)
				if err == nil {
					_ = conn.Close()
					return
				}
				mutex.Lock()
				failedCount++
				mutex.Unlock()
			})
		}
	}()
	return failures, attempts
}
