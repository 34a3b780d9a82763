package neighbours_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// source says whose address the server sees as the client's.
type source string

const (
	client source = "the client"
	node   source = "the node that the client dialled"
)

// cell is the expected outcome of connections from one kind of client to one kind of frontend.
type cell struct {
	servers []string // one of these responds
	sees    source
}

// spec is a row of the packet matrix (e2e/packets/matrix_test.go): connections to frontends of a Service.
type spec struct {
	app                app
	internal           bool // its ClusterIP; otherwise all other frontends
	pod, node, outside cell
}

var (
	onlyNear, onlyFar, both = []string{"near"}, []string{"far"}, []string{"near", "far"}

	specs = []spec{
		{nearApp, true, cell{onlyNear, client}, cell{onlyNear, node}, cell{onlyNear, node}},
		{nearApp, false, cell{onlyNear, node}, cell{onlyNear, node}, cell{onlyNear, node}},
		{farApp, true, cell{onlyFar, client}, cell{onlyFar, node}, cell{onlyFar, node}},
		{farApp, false, cell{onlyFar, node}, cell{onlyFar, node}, cell{onlyFar, node}},
		{localApp, true, cell{onlyNear, client}, cell{onlyNear, node}, cell{onlyNear, node}},
		{localApp, false, cell{both, client}, cell{both, node}, cell{onlyNear, client}},
	}
)

// frontends returns the addresses of the spec's Service.
func (s spec) frontends(m *machine) []netip.AddrPort {
	if s.internal {
		return addrPorts(servicePort, s.app.clusterIPs()...)
	}
	return slices.Concat(addrPorts(servicePort, s.app.externalIPs()...), addrPorts(servicePort, s.app.balancerIPs()...),
		addrPorts(s.app.nodePort(), m.IPv4, m.IPv6))
}

// ipv4Frontends returns those of frontends that are IPv4 addresses.
func (s spec) ipv4Frontends(m *machine) []netip.AddrPort {
	return slices.DeleteFunc(s.frontends(m), func(addr netip.AddrPort) bool { return addr.Addr().Is6() })
}

func addrPorts(port uint16, addrs ...netip.Addr) []netip.AddrPort {
	var all []netip.AddrPort
	for _, addr := range addrs {
		all = append(all, netip.AddrPortFrom(addr, port))
	}
	return all
}

// expectAllServed checks everything that a neighbour must not change.
func (tb *testbed) expectAllServed(desc string) {
	tb.t.Helper()
	first := tb.nodes[0]
	var checks []check
	for _, spec := range specs {
		for _, to := range spec.frontends(first) {
			checks = append(checks, check{tb.client.Namespace, to, spec.pod}, check{first.Namespace, to, spec.node},
				check{tb.outside, to, spec.outside})
		}
	}
	// A pod that dials itself through its Service would drop packets with its own source address.
	for _, internal := range []bool{true, false} {
		for _, to := range (spec{app: nearApp, internal: internal}).frontends(first) {
			checks = append(checks, check{tb.near.Namespace, to, cell{onlyNear, node}})
		}
	}
	for _, server := range []*fabric.Pod{tb.near, tb.far} {
		for _, to := range addrPorts(podPort, server.IPv4, server.IPv6) {
			checks = append(checks, check{tb.client.Namespace, to, cell{[]string{server.Name}, client}},
				check{first.Namespace, to, cell{[]string{server.Name}, node}})
		}
	}
	tb.expect(desc, checks...)
}

// check describes connections from a machine or pod to an address, over all protocols.
type check struct {
	from *fabric.Namespace
	to   netip.AddrPort
	want cell
}

var networks = []string{"tcp", "udp", "sctp"}

// expect makes the connections of the checks.
func (tb *testbed) expect(desc string, checks ...check) {
	tb.t.Helper()
	tb.expectOver(networks, desc, checks...)
}

// expectOver makes the connections of the checks over some protocols, several at a time.
func (tb *testbed) expectOver(networks []string, desc string, checks ...check) {
	tb.t.Helper()
	var mu sync.Mutex
	var failures []string
	var dialling sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, check := range checks {
		for _, network := range networks {
			slots <- struct{}{}
			dialling.Go(func() {
				defer func() { <-slots }()
				if err := tb.request(check, network); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, fmt.Sprintf("connection from %s to %s over %s: %v", check.from.Name, check.to, network, err))
				}
			})
		}
	}
	dialling.Wait()
	slices.Sort(failures)
	if len(failures) > 0 {
		tb.t.Errorf("%s: %d of %d connections failed:\n%s", desc, len(failures), len(checks)*len(networks), strings.Join(failures, "\n"))
	}
}

func (tb *testbed) request(c check, network string) error {
	reply, err := c.from.Request(network, c.to, requestTimeout)
	if err != nil {
		return err
	}
	if !slices.Contains(c.want.servers, reply.Pod) {
		return fmt.Errorf("%s replied, want one of %v", reply.Pod, c.want.servers)
	}
	sees := client
	if reply.Client.Addr() != reply.Local.Addr() || c.from == tb.nodes[0].Namespace {
		sees = node
	}
	addrs, err := addrsOf(tb.nodes[0].Namespace)
	if err != nil {
		return err
	}
	if sees != c.want.sees || sees == node && !slices.Contains(addrs, reply.Client.Addr()) {
		return fmt.Errorf("%s sees %s, want %s (%s)", reply.Pod, reply.Client.Addr(), c.want.sees, reply.Local.Addr())
	}
	return nil
}

// addrsOf returns the addresses of a machine's interfaces: flannel, Docker and others add some.
func addrsOf(n *fabric.Namespace) (addrs []netip.Addr, err error) {
	err = n.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, addr := range all {
			prefix, parseErr := netip.ParsePrefix(addr.String())
			addrs, err = append(addrs, prefix.Addr()), errors.Join(err, parseErr)
		}
		return err
	})
	return addrs, err
}

// expectEvacuation checks that the endpoints of a node are removed while it is evacuated.
func (tb *testbed) expectEvacuation() {
	tb.t.Helper()
	evacuated := func(names ...string) {
		tb.t.Helper()
		tb.writeNodes(names...)
		servers := slices.DeleteFunc(slices.Clone(both), func(name string) bool {
			return len(names) > 0 && name == "far"
		})
		wait.Success(tb.t, fmt.Sprintf("only %v reply", servers), func() error {
			seen := map[string]bool{}
			for range 32 { // by chance, one of two is missed once in 2^31 runs
				reply, err := tb.outside.Get(addrPorts(bothApp.nodePort(), tb.nodes[0].IPv4)[0])
				if err != nil {
					return err
				}
				seen[reply.Pod] = true
			}
			if len(seen) != len(servers) || !seen["near"] {
				return fmt.Errorf("%v replied", seen)
			}
			return nil
		})
	}
	evacuated("node-2")
	evacuated()
}

// underTraffic makes new connections, and sends requests on open ones, while the given function runs. None may fail.
func (tb *testbed) underTraffic(what string, do func()) {
	tb.t.Helper()
	tb.t.Logf("%s, under traffic", what)
	ended := make(chan struct{})
	var begun, clients sync.WaitGroup
	defer clients.Wait()
	defer close(ended) // in any case: a client that outlives the test would hide why the test ended
	for _, c := range []check{
		{tb.client.Namespace, addrPorts(servicePort, farApp.clusterIPs()...)[0], cell{}},
		{tb.client.Namespace, addrPorts(servicePort, nearApp.clusterIPs()...)[1], cell{}},
		{tb.outside, addrPorts(farApp.nodePort(), tb.nodes[0].IPv4)[0], cell{}},
		{tb.outside, addrPorts(servicePort, localApp.balancerIPs()...)[1], cell{}},
	} {
		conn, err := c.from.Open("tcp", c.to)
		must.Succeed(tb.t, err)
		begun.Add(1)
		clients.Go(func() {
			defer conn.Close()
			begins := sync.OnceFunc(begun.Done)
			defer begins()
			for count := 0; ; count++ {
				select {
				case <-ended:
					return
				default:
				}
				_, dialErr := c.from.Request("tcp", c.to, requestTimeout)
				_, requestErr := conn.Request(requestTimeout)
				if err := errors.Join(dialErr, requestErr); err != nil {
					tb.t.Errorf("%s, connection %d of %s to %s: %v", what, count, c.from.Name, c.to, err)
					return
				}
				begins()
				time.Sleep(5 * time.Millisecond) // otherwise the client soon has no ports left
			}
		})
	}
	begun.Wait() // under load a client may take longer than the given function
	do()
}

// requestTimeout bounds the time of a connection or response. TCP retransmits packets that a firewall drops while it
// reloads.
const requestTimeout = wait.Timeout / 6

// neighbour is a program with rules of its own.
type neighbour struct {
	// flags are additional flags of the proxy.
	flags []string
	// start starts it on a node with its usual configuration and the lines for it in manifests/coexistence.md.
	start func(*machine)
	// update makes it write its rules again, as after a change of its configuration.
	update func(*machine)
	// restart stops it and starts it.
	restart func(*machine)
	// check checks the program's own function.
	check func(*testbed)
}

// testNeighbour runs the specs with a neighbour that starts before the proxy and with one that starts after it. The
// kernel runs chains of one priority in an order that depends on the order of registration.
func testNeighbour(t *testing.T, n neighbour) {
	t.Helper()
	t.Run("the neighbour started first", func(t *testing.T) {
		t.Parallel()
		tb := newTestbed(t, n.flags...)
		tb.forEachNode(n.start)
		tb.forEachNode((*machine).startProxy)
		tb.runLifecycle(n)
	})
	t.Run("the proxy started first", func(t *testing.T) {
		t.Parallel()
		tb := newTestbed(t, n.flags...)
		tb.forEachNode((*machine).startProxy)
		tb.forEachNode(n.start)
		tb.runLifecycle(n)
	})
}

// runLifecycle runs the specs through updates and restarts of both programs.
func (tb *testbed) runLifecycle(n neighbour) {
	tb.t.Helper()
	expectAll := func(when string) {
		tb.t.Helper()
		if n.check != nil {
			n.check(tb) // first, because it waits for late effects of a start, such as flannel's routes; UDP requests are not retried
		}
		tb.expectAllServed(when)
		if tb.t.Failed() {
			tb.t.FailNow() // later steps would fail the same way
		}
	}
	expectAll("at first")
	for _, change := range []struct {
		desc string
		do   func(*machine)
	}{
		{"update of the neighbour", n.update},
		{"restart of the proxy", (*machine).restartProxy},
		{"restart of the neighbour", n.restart},
		{"second restart of the proxy", (*machine).restartProxy},
	} {
		tb.underTraffic(change.desc, func() { tb.forEachNode(change.do) })
		expectAll("after the " + change.desc)
	}
	tb.expectEvacuation()
}

// forEachNode runs a function for every node.
func (tb *testbed) forEachNode(do func(*machine)) {
	tb.t.Helper()
	for _, node := range tb.nodes {
		do(node)
	}
}
