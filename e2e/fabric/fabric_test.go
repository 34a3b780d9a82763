package fabric

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const testPort = 8080

// testbed is two nodes, three serving pods, a client pod on the first node, and a host that is routed through the second
// node.
type testbed struct {
	fabric                           *Fabric
	nodeA, nodeB                     *Node
	client, webA, webB, unresponsive *Pod
	outside                          *Host
}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	f, err := New()
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	tb := &testbed{fabric: f}
	tb.nodeA, tb.nodeB = add(t, f.AddNode, "node-a"), add(t, f.AddNode, "node-b")
	tb.client, tb.webA = add(t, tb.nodeA.AddPod, "client"), add(t, tb.nodeA.AddPod, "web-a")
	tb.webB, tb.unresponsive = add(t, tb.nodeB.AddPod, "web-b"), add(t, tb.nodeB.AddPod, "silent")
	tb.outside, err = f.AddHost("outside", tb.nodeB)
	must(t, err)
	for _, ns := range []*Namespace{tb.webA.Namespace, tb.webB.Namespace, tb.nodeA.Namespace, tb.outside.Namespace} {
		_, err := ns.Serve(testPort)
		must(t, err)
	}
	return tb
}

func add[T any](t *testing.T, adder func(string) (T, error), name string) T {
	t.Helper()
	added, err := adder(name)
	must(t, err)
	return added
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryNamespaceReachesEveryServerWithItsOwnAddress(t *testing.T) {
	tb := newTestbed(t)
	tests := map[string]struct {
		from, to *Namespace
		toNode   string
	}{
		"a pod reaches a pod on the same node":     {tb.client.Namespace, tb.webA.Namespace, "node-a"},
		"a pod reaches a pod on another node":      {tb.client.Namespace, tb.webB.Namespace, "node-b"},
		"a pod reaches itself":                     {tb.webA.Namespace, tb.webA.Namespace, "node-a"},
		"a pod reaches a server on its own node":   {tb.client.Namespace, tb.nodeA.Namespace, "node-a"},
		"a pod reaches a server on another node":   {tb.webB.Namespace, tb.nodeA.Namespace, "node-a"},
		"a pod reaches a host":                     {tb.client.Namespace, tb.outside.Namespace, ""},
		"a node reaches its own pod":               {tb.nodeA.Namespace, tb.webA.Namespace, "node-a"},
		"a node reaches a pod on another node":     {tb.nodeB.Namespace, tb.webA.Namespace, "node-a"},
		"a node reaches another node":              {tb.nodeB.Namespace, tb.nodeA.Namespace, "node-a"},
		"a host reaches a pod on its gateway node": {tb.outside.Namespace, tb.webB.Namespace, "node-b"},
		"a host reaches a pod on the other node":   {tb.outside.Namespace, tb.webA.Namespace, "node-a"},
	}
	for name, test := range tests {
		for _, network := range []string{"tcp", "udp", "sctp"} {
			t.Run(name+" over "+network, func(t *testing.T) {
				requestBothFamilies(t, network, test.from, test.to, test.toNode)
			})
		}
	}
}

func requestBothFamilies(t *testing.T, network string, from, to *Namespace, toNode string) {
	t.Helper()
	for family, addrs := range map[string][2]netip.Addr{"IPv4": {from.IPv4, to.IPv4}, "IPv6": {from.IPv6, to.IPv6}} {
		reply, err := from.Request(network, netip.AddrPortFrom(addrs[1], testPort), Timeout)
		if err != nil {
			t.Errorf("%s: %v", family, err)
			continue
		}
		client := netip.AddrPortFrom(addrs[0], reply.Client.Port())
		server := netip.AddrPortFrom(addrs[1], testPort)
		want := Reply{Pod: to.Name, Node: toNode, Server: server, Client: client, Local: client}
		if diff := cmp.Diff(want, reply, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("%s: wrong reply (-want +got):\n%s", family, diff)
		}
	}
}

func TestEveryConnectionComesFromAFreshPort(t *testing.T) {
	tb := newTestbed(t)
	for _, network := range []string{"tcp", "udp", "sctp"} {
		seen := map[uint16]bool{}
		for range 50 {
			reply, err := tb.client.Request(network, netip.AddrPortFrom(tb.webB.IPv4, testPort), Timeout)
			must(t, err)
			if seen[reply.Client.Port()] {
				t.Fatalf("%s: port %d was used twice", network, reply.Client.Port())
			}
			seen[reply.Client.Port()] = true
		}
	}
}

func TestRequestWithoutServerIsRefused(t *testing.T) {
	tb := newTestbed(t)
	for _, addr := range []netip.Addr{tb.unresponsive.IPv4, tb.unresponsive.IPv6} {
		// If the kernel lacks SCTP, the pod rejects the whole protocol, with another error.
		for network, want := range map[string][]error{
			"tcp":  {syscall.ECONNREFUSED},
			"udp":  {syscall.ECONNREFUSED},
			"sctp": {syscall.ECONNREFUSED, syscall.ENOPROTOOPT, syscall.EPROTO},
		} {
			_, err := tb.client.Request(network, netip.AddrPortFrom(addr, testPort), time.Minute)
			if !isAny(err, want) {
				t.Errorf("request to %s over %s: got %v, want one of %v", addr, network, err, want)
			}
		}
	}
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func TestUnassignedAddressGivesNoReply(t *testing.T) {
	tb := newTestbed(t)
	for _, from := range []*Namespace{tb.client.Namespace, tb.nodeA.Namespace, tb.outside.Namespace} {
		for _, addr := range []string{"10.96.0.10", "fd00:96::a"} {
			for _, network := range []string{"tcp", "udp", "sctp"} {
				_, err := from.Request(network, netip.AddrPortFrom(netip.MustParseAddr(addr), 80), 50*time.Millisecond)
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("request to %s over %s from %s: got %v, want a timeout", addr, network, from.Name, err)
				}
			}
		}
	}
}

func TestClosingOneServerKeepsOthers(t *testing.T) {
	tb := newTestbed(t)
	second, err := tb.webA.Serve(testPort + 1)
	must(t, err)
	must(t, second.Close())
	if _, err := tb.client.Get(netip.AddrPortFrom(tb.webA.IPv4, testPort+1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("request to the closed server: got %v, want connection refused", err)
	}
	reply, err := tb.client.Get(netip.AddrPortFrom(tb.webA.IPv4, testPort))
	must(t, err)
	if reply.Pod != "web-a" {
		t.Errorf("%s responded, want web-a", reply.Pod)
	}
}

func TestErrorForPortInUse(t *testing.T) {
	tb := newTestbed(t)
	_, err := tb.webA.Serve(testPort)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("second server on a port: got %v, want EADDRINUSE", err)
	}
	if want := fmt.Sprintf("serve port %d on web-a", testPort); !cmp.Equal(err.Error()[:len(want)], want) {
		t.Errorf("error %q, want it to start with %q", err, want)
	}
}

func TestListenAndDialInNamespace(t *testing.T) {
	tb := newTestbed(t)
	addr := net.JoinHostPort(tb.webB.IPv6.String(), "9000")
	listener, err := tb.webB.Listen("tcp", addr)
	must(t, err)
	defer listener.Close()
	conn, err := tb.client.Dial("tcp", addr, Timeout)
	must(t, err)
	defer conn.Close()
	if got := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != tb.client.IPv6 {
		t.Errorf("the connection comes from %s, want %s", got, tb.client.IPv6)
	}
	packets, err := tb.webB.ListenPacket("udp", addr)
	must(t, err)
	must(t, packets.Close())
}

func TestConnectionIsReused(t *testing.T) {
	tb := newTestbed(t)
	addr := netip.AddrPortFrom(tb.webB.IPv4, testPort)
	conn, err := tb.client.Dial("tcp", addr.String(), Timeout)
	must(t, err)
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for range 2 {
		_, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
		must(t, err)
		response, err := http.ReadResponse(reader, nil)
		must(t, err)
		var reply Reply
		must(t, json.NewDecoder(response.Body).Decode(&reply))
		must(t, response.Body.Close())
		if got := net.TCPAddrFromAddrPort(reply.Client).String(); got != conn.LocalAddr().String() || reply.Pod != "web-b" {
			t.Errorf("%s responded to %s, want web-b to respond to %s", reply.Pod, got, conn.LocalAddr())
		}
	}
}

// For the fabric, the kernel's SCTP sockets differ from its TCP sockets only in the protocol number. Kernels without
// SCTP are common; this test runs the same code on them.
func TestKernelStreamSockets(t *testing.T) {
	tb := newTestbed(t)
	server := &Server{namespace: tb.webB.Namespace}
	for _, addr := range []netip.Addr{tb.webB.IPv4, tb.webB.IPv6} {
		must(t, server.listenStream(syscall.IPPROTO_TCP, netip.AddrPortFrom(addr, 9000)))
	}
	for _, addr := range []netip.Addr{tb.webB.IPv4, tb.webB.IPv6} {
		conn, err := tb.client.dialStream(syscall.IPPROTO_TCP, netip.Addr{}, netip.AddrPortFrom(addr, 9000), time.Now().Add(Timeout))
		must(t, err)
		stream := messages{conn}
		for range 2 {
			reply, err := stream.exchange(time.Now().Add(Timeout))
			must(t, err)
			if diff := cmp.Diff(string(server.reply(netip.AddrPortFrom(addr, 9000), stream.local())), string(reply)); diff != "" {
				t.Errorf("wrong response (-want +got):\n%s", diff)
			}
		}
		must(t, conn.Close())
	}
	must(t, server.Close())
	addr := netip.AddrPortFrom(tb.webB.IPv4, 9000)
	_, err := tb.client.dialStream(syscall.IPPROTO_TCP, netip.Addr{}, addr, time.Now().Add(Timeout))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connection to a closed server: got %v, want connection refused", err)
	}
	unassigned := netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), 80)
	_, err = tb.client.dialStream(syscall.IPPROTO_TCP, netip.Addr{}, unassigned, time.Now().Add(50*time.Millisecond))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection to an unassigned address: got %v, want a timeout", err)
	}
}
