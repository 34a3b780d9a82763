//go:build linux

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The links of a router, by where they lead.
const (
	clientSide = "client-side"
	serverSide = "server-side"
)

// network is a client, a router and a server in a row, each with the address that the others connect to.
type network struct {
	client, router, server             *netns.Namespace
	clientAddr, routerAddr, serverAddr netip.Addr
	routerFarAddr                      netip.Addr // on the server's side
}

func newNetwork(t *testing.T, family model.Family) network {
	t.Helper()
	near, far := netip.MustParsePrefix("10.1.0.1/24"), netip.MustParsePrefix("10.2.0.1/24")
	forwarding, anyDestination := "/proc/sys/net/ipv4/ip_forward", netip.MustParsePrefix("0.0.0.0/0")
	if family == model.IPv6 {
		near, far = netip.MustParsePrefix("fd00:1::1/64"), netip.MustParsePrefix("fd00:2::1/64")
		forwarding, anyDestination = "/proc/sys/net/ipv6/conf/all/forwarding", netip.MustParsePrefix("::/0")
	}
	n := network{client: netns.New(t), router: netns.New(t), server: netns.New(t)}
	n.clientAddr, n.routerAddr = near.Addr(), near.Addr().Next()
	n.serverAddr, n.routerFarAddr = far.Addr(), far.Addr().Next()
	addVethPair(t, n.router, clientSide, n.client, "eth0")
	addVethPair(t, n.router, serverSide, n.server, "eth0")
	setUp(t, n.client, "eth0", near)
	setUp(t, n.router, clientSide, netip.PrefixFrom(n.routerAddr, near.Bits()))
	setUp(t, n.router, serverSide, netip.PrefixFrom(n.routerFarAddr, far.Bits()))
	setUp(t, n.server, "eth0", far)
	route(t, n.client, anyDestination, n.routerAddr)
	route(t, n.server, anyDestination, n.routerFarAddr)
	n.router.Do(func() { // a thread sees the router's sysctls only in its namespace
		if err := os.WriteFile(forwarding, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	})
	return n
}

// addVethPair creates a veth pair between two namespaces.
func addVethPair(t *testing.T, near *netns.Namespace, nearName string, far *netns.Namespace, farName string) {
	t.Helper()
	var end vishnetns.NsHandle
	var err error
	far.Do(func() { end, err = vishnetns.Get() })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Close() }()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = nearName
	near.Do(func() {
		err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: farName, PeerNamespace: netlink.NsFd(end)})
	})
	if err != nil {
		t.Fatalf("create veth pair %s and %s: %v", nearName, farName, err)
	}
}

// setUp gives a link an address, which is usable at once, and sets it up.
func setUp(t *testing.T, namespace *netns.Namespace, name string, prefix netip.Prefix) {
	t.Helper()
	err := fmt.Errorf("no link %s", name)
	namespace.Do(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName(name); err != nil {
			return
		}
		addr := &netlink.Addr{IPNet: ipNet(prefix), Flags: unix.IFA_F_NODAD}
		if err = netlink.AddrAdd(link, addr); err == nil {
			err = netlink.LinkSetUp(link)
		}
	})
	if err != nil {
		t.Fatalf("set up %s with %s: %v", name, prefix, err)
	}
}

func route(t *testing.T, namespace *netns.Namespace, to netip.Prefix, via netip.Addr) {
	t.Helper()
	var err error
	namespace.Do(func() { err = netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}) })
	if err != nil {
		t.Fatalf("add route to %s: %v", to, err)
	}
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// port is the port of all listeners.
const port = 8080

func listen(t *testing.T, namespace *netns.Namespace, addr netip.Addr) {
	t.Helper()
	namespace.Do(func() {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	})
}

// connectFrom opens a connection from an address of the namespace, and closes it.
func connectFrom(t *testing.T, namespace *netns.Namespace, from, to netip.Addr) {
	t.Helper()
	namespace.Do(func() {
		dialer := net.Dialer{Timeout: wait.Timeout, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
		connection, err := dialer.Dial("tcp", netip.AddrPortFrom(to, port).String())
		if err != nil {
			t.Fatalf("connect to %s from %s: %v", to, from, err)
		}
		_ = connection.Close()
	})
}
