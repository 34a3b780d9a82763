package fabric

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestPodsOnBridgeCommunicateThroughTheirNode(t *testing.T) {
	f, err := New()
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	bridged := add(t, f.AddBridgeNode, "node-a")
	routed := add(t, f.AddNode, "node-b")
	client, web, far := add(t, bridged.AddPod, "client"), add(t, bridged.AddPod, "web"), add(t, routed.AddPod, "far")
	for _, ns := range []*Namespace{web.Namespace, far.Namespace} {
		_, err := ns.Serve(testPort)
		must(t, err)
	}
	links := map[string]bool{}
	must(t, bridged.Do(func() error {
		all, err := net.Interfaces()
		for _, link := range all {
			links[link.Name] = true
		}
		return err
	}))
	for _, name := range []string{PodBridge, PodLinkPrefix + "1", PodLinkPrefix + "2"} {
		if !links[name] {
			t.Errorf("the node has links %v, want also %s", links, name)
		}
	}
	for _, network := range []string{"tcp", "udp", "sctp"} {
		requestBothFamilies(t, network, client.Namespace, web.Namespace, "node-a")
		requestBothFamilies(t, network, client.Namespace, far.Namespace, "node-b")
		requestBothFamilies(t, network, far.Namespace, web.Namespace, "node-a")
		requestBothFamilies(t, network, bridged.Namespace, web.Namespace, "node-a")
	}
}

func TestAddedAddressIsReachedByRoute(t *testing.T) {
	tb := newTestbed(t)
	for _, addr := range []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")} {
		to := netip.AddrPortFrom(addr, testPort)
		must(t, tb.nodeA.AddAddr(addr))
		server, err := tb.nodeA.Serve(testPort, addr)
		must(t, err)
		if _, err := tb.outside.Request("tcp", to, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("request to %s without a route: got %v, want a timeout", addr, err)
		}
		must(t, tb.outside.RouteVia(single(addr), tb.nodeA.Namespace))
		reply, err := tb.outside.Get(to)
		must(t, err)
		if reply.Pod != "node-a" {
			t.Errorf("%s responded for %s, want node-a", reply.Pod, addr)
		}
		must(t, server.Close())
		must(t, tb.nodeA.RemoveAddr(addr))
		if _, err := tb.outside.Request("tcp", to, 50*time.Millisecond); err == nil {
			t.Errorf("%s still responded after it was removed", addr)
		}
	}
}

func TestConnectionKeepsItsPort(t *testing.T) {
	tb := newTestbed(t)
	for _, network := range []string{"tcp", "udp", "sctp"} {
		for _, addr := range []netip.Addr{tb.webB.IPv4, tb.webB.IPv6} {
			connection, err := tb.client.Open(network, netip.AddrPortFrom(addr, testPort))
			must(t, err)
			var first Reply
			for i := range 3 {
				reply, err := connection.Request(Timeout)
				must(t, err)
				if i == 0 {
					first = reply
				}
				if reply != first || reply.Client != reply.Local || reply.Pod != "web-b" {
					t.Errorf("%s: the response to request %d is %+v, the first one %+v", network, i, reply, first)
				}
			}
			must(t, connection.Close())
			must(t, connection.Close())
			if _, err := connection.Request(Timeout); err == nil {
				t.Errorf("%s: a request on a closed connection succeeded", network)
			}
		}
	}
}

func TestPing(t *testing.T) {
	tb := newTestbed(t)
	for _, addr := range []netip.Addr{tb.webB.IPv4, tb.webB.IPv6} {
		echo, err := tb.client.Ping(addr, Timeout)
		must(t, err)
		want := Echo{From: addr, Type: 0}
		if addr.Is6() {
			want.Type = 129
		}
		if echo != want {
			t.Errorf("echo reply %+v, want %+v", echo, want)
		}
	}
	if _, err := tb.client.Ping(netip.MustParseAddr("10.96.0.10"), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ping of an unassigned address: got %v, want a timeout", err)
	}
	for addr, want := range map[string]Echo{
		"203.0.113.9": {From: tb.nodeA.IPv4, Type: 3, Code: 1},
		"2001:db8::9": {From: tb.nodeA.IPv6, Type: 1, Code: 0},
	} {
		addr := netip.MustParseAddr(addr)
		unreachable := &netlink.Route{Dst: ipNet(single(addr)), Type: unix.RTN_UNREACHABLE}
		must(t, tb.nodeA.links.RouteAdd(unreachable))
		echo, err := tb.client.Ping(addr, Timeout)
		must(t, err)
		if echo != want {
			t.Errorf("ICMP error %+v, want %+v", echo, want)
		}
	}
}

func TestPodSendsFromAddedAddress(t *testing.T) {
	tb := newTestbed(t)
	for _, addr := range []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::2")} {
		must(t, tb.client.AddAddr(addr))
		for _, network := range []string{"tcp", "udp", "sctp"} {
			server := tb.webA.addrOf(single(addr))
			reply, err := tb.client.RequestFrom(network, addr, netip.AddrPortFrom(server, testPort), Timeout)
			must(t, err)
			if reply.Client.Addr() != addr || reply.Local != reply.Client {
				t.Errorf("over %s the server saw client %s and the client used %s, want %s for both", network, reply.Client, reply.Local, addr)
			}
		}
	}
}
