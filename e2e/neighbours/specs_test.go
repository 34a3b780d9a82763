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

// source is the client that the server sees.
type source string

const (
	client source = "the client"
	node   source = "the node that the client dialled"
)

// cell is the outcome of connections from one kind of client to one kind of frontend.
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
func (s spec) frontends(on *machine) []netip.AddrPort {
	if s.internal {
		return at(servicePort, s.app.clusterIPs()...)
	}
	return slices.Concat(at(servicePort, s.app.externalIPs()...), at(servicePort, s.app.balancer()...),
		at(s.app.nodePort(), on.IPv4, on.IPv6))
}

// overIPv4 returns those of frontends that are IPv4 addresses.
func (s spec) overIPv4(on *machine) []netip.AddrPort {
	return slices.DeleteFunc(s.frontends(on), func(addr netip.AddrPort) bool { return addr.Addr().Is6() })
}

func at(port uint16, addrs ...netip.Addr) []netip.AddrPort {
	var all []netip.AddrPort
	for _, addr := range addrs {
		all = append(all, netip.AddrPortFrom(addr, port))
	}
	return all
}

// holds checks everything that a neighbour must not change.
func (s *town) holds(why string) {
	s.t.Helper()
	first := s.nodes[0]
	var checks []check
	for _, spec := range specs {
		for _, to := range spec.frontends(first) {
			checks = append(checks, check{s.client.Namespace, to, spec.pod}, check{first.Namespace, to, spec.node},
				check{s.outside, to, spec.outside})
		}
	}
	// A pod that dials itself through its Service would drop packets with its own source address.
	for _, internal := range []bool{true, false} {
		for _, to := range (spec{app: nearApp, internal: internal}).frontends(first) {
			checks = append(checks, check{s.near.Namespace, to, cell{onlyNear, node}})
		}
	}
	for _, server := range []*fabric.Pod{s.near, s.far} {
		for _, to := range at(podPort, server.IPv4, server.IPv6) {
			checks = append(checks, check{s.client.Namespace, to, cell{[]string{server.Name}, client}},
				check{first.Namespace, to, cell{[]string{server.Name}, node}})
		}
	}
	s.expect(why, checks...)
}

// check describes connections from a machine or pod to an address, over all protocols.
type check struct {
	from *fabric.Namespace
	to   netip.AddrPort
	want cell
}

var networks = []string{"tcp", "udp", "sctp"}

// expect makes the connections of the checks.
func (s *town) expect(why string, checks ...check) {
	s.t.Helper()
	s.expectOver(networks, why, checks...)
}

// expectOver makes the connections of the checks over some protocols, several at a time.
func (s *town) expectOver(networks []string, why string, checks ...check) {
	s.t.Helper()
	var mu sync.Mutex
	var failures []string
	var dialling sync.WaitGroup
	free := make(chan struct{}, 16)
	for _, check := range checks {
		for _, network := range networks {
			free <- struct{}{}
			dialling.Go(func() {
				defer func() { <-free }()
				if err := s.request(check, network); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, fmt.Sprintf("%s dials %s over %s: %v", check.from.Name, check.to, network, err))
				}
			})
		}
	}
	dialling.Wait()
	slices.Sort(failures)
	if len(failures) > 0 {
		s.t.Errorf("%s: %d of %d connections failed:\n%s", why, len(failures), len(checks)*len(networks), strings.Join(failures, "\n"))
	}
}

func (s *town) request(c check, network string) error {
	reply, err := c.from.Request(network, c.to, slowest)
	if err != nil {
		return err
	}
	if !slices.Contains(c.want.servers, reply.Pod) {
		return fmt.Errorf("%s replied, want one of %v", reply.Pod, c.want.servers)
	}
	sees := client
	if reply.Client.Addr() != reply.Own.Addr() || c.from == s.nodes[0].Namespace {
		sees = node
	}
	addrs, err := addrsOf(s.nodes[0].Namespace)
	if err != nil {
		return err
	}
	if sees != c.want.sees || sees == node && !slices.Contains(addrs, reply.Client.Addr()) {
		return fmt.Errorf("%s sees %s, want %s (%s)", reply.Pod, reply.Client.Addr(), c.want.sees, reply.Own.Addr())
	}
	return nil
}

// addrsOf returns the addresses of a machine's interfaces: flannel, Docker and others add some.
func addrsOf(n *fabric.Namespace) (addrs []netip.Addr, err error) {
	err = n.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, addr := range all {
			prefix, failed := netip.ParsePrefix(addr.String())
			addrs, err = append(addrs, prefix.Addr()), errors.Join(err, failed)
		}
		return err
	})
	return addrs, err
}

// evacuates checks that the endpoints of a node are removed while it is evacuated.
func (s *town) evacuates() {
	s.t.Helper()
	evacuated := func(names ...string) {
		s.t.Helper()
		s.writeNodes(names...)
		answering := slices.DeleteFunc(slices.Clone(both), func(name string) bool {
			return len(names) > 0 && name == "far"
		})
		wait.Success(s.t, fmt.Sprintf("only %v reply", answering), func() error {
			seen := map[string]bool{}
			for range 32 { // by chance, one of two is missed once in 2^31 runs
				reply, err := s.outside.Get(at(bothApp.nodePort(), s.nodes[0].IPv4)[0])
				if err != nil {
					return err
				}
				seen[reply.Pod] = true
			}
			if len(seen) != len(answering) || !seen["near"] {
				return fmt.Errorf("%v replied", seen)
			}
			return nil
		})
	}
	evacuated("node-2")
	evacuated()
}

// during makes connections while the given function runs: new ones, and on some that stay open. None may fail.
func (s *town) during(what string, happens func()) {
	s.t.Helper()
	s.t.Logf("%s, under traffic", what)
	ended := make(chan struct{})
	var begun, clients sync.WaitGroup
	defer clients.Wait()
	defer close(ended) // in any case: a client that outlives the test would hide why the test ended
	for _, c := range []check{
		{s.client.Namespace, at(servicePort, farApp.clusterIPs()...)[0], cell{}},
		{s.client.Namespace, at(servicePort, nearApp.clusterIPs()...)[1], cell{}},
		{s.outside, at(farApp.nodePort(), s.nodes[0].IPv4)[0], cell{}},
		{s.outside, at(servicePort, localApp.balancer()...)[1], cell{}},
	} {
		stays, err := c.from.Open("tcp", c.to)
		must.Succeed(s.t, err)
		begun.Add(1)
		clients.Go(func() {
			defer stays.Close()
			begins := sync.OnceFunc(begun.Done)
			defer begins()
			for count := 0; ; count++ {
				select {
				case <-ended:
					return
				default:
				}
				_, dialled := c.from.Request("tcp", c.to, slowest)
				_, asked := stays.Request(slowest)
				if err := errors.Join(dialled, asked); err != nil {
					s.t.Errorf("%s, connection %d of %s to %s: %v", what, count, c.from.Name, c.to, err)
					return
				}
				begins()
				time.Sleep(5 * time.Millisecond) // otherwise the client soon has no ports left
			}
		})
	}
	begun.Wait() // under load a client may take longer than the given function
	happens()
}

// slowest bounds the time of a connection or response. TCP retransmits packets that a firewall drops while it reloads.
const slowest = wait.Timeout / 6

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
	// promise checks the program's own function.
	promise func(*town)
}

// beside runs the specs with a neighbour that starts before the proxy and with one that starts after it. The kernel
// runs chains of one priority in an order that depends on the order of registration.
func beside(t *testing.T, n neighbour) {
	t.Helper()
	t.Run("the neighbour started first", func(t *testing.T) {
		t.Parallel()
		here := newTown(t, n.flags...)
		here.each(n.start)
		here.each((*machine).startProxy)
		here.lives(n)
	})
	t.Run("the proxy started first", func(t *testing.T) {
		t.Parallel()
		here := newTown(t, n.flags...)
		here.each((*machine).startProxy)
		here.each(n.start)
		here.lives(n)
	})
}

// lives runs the specs through updates and restarts of both programs.
func (s *town) lives(n neighbour) {
	s.t.Helper()
	holds := func(when string) {
		s.t.Helper()
		if n.promise != nil {
			n.promise(s) // first, because it waits for late effects of a start, such as flannel's routes; UDP does not
		}
		s.holds(when)
		if s.t.Failed() {
			s.t.FailNow() // later steps would fail the same way
		}
	}
	holds("at first")
	for _, change := range []struct {
		what string
		do   func(*machine)
	}{
		{"update of the neighbour", n.update},
		{"restart of the proxy", (*machine).restartProxy},
		{"restart of the neighbour", n.restart},
		{"second restart of the proxy", (*machine).restartProxy},
	} {
		s.during(change.what, func() { s.each(change.do) })
		holds("after the " + change.what)
	}
	s.evacuates()
}

// each runs a function for every node.
func (s *town) each(do func(*machine)) {
	s.t.Helper()
	for _, node := range s.nodes {
		do(node)
	}
}
