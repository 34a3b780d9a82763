//go:build linux

package interfaces

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// routeProgram records the UDP destinations that `fib daddr type local` matches.
const routeProgram = `
table inet recorder {
	set ipv4 { type ipv4_addr; flags dynamic; size 1000; }
	set ipv6 { type ipv6_addr; flags dynamic; size 1000; }
	chain output {
		type filter hook output priority 0;
		udp dport 9 fib daddr type local add @ipv4 { ip daddr }
		udp dport 9 fib daddr type local add @ipv6 { ip6 daddr }
	}
}
`

// localByTables returns those of the addresses that `fib daddr type local` matches.
func (n network) localByTables(addrs []netip.Addr) []netip.Addr {
	n.t.Helper()
	n.Load(routeProgram)
	sent := 0
	n.Do(func() {
		for _, addr := range addrs {
			conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
			if err != nil {
				continue // there is no route, so it is not local
			}
			if _, err := conn.Write([]byte("?")); err == nil {
				sent++
			}
			_ = conn.Close()
		}
	})
	if sent == 0 {
		n.t.Fatal("no packet was sent")
	}
	listed := strings.Fields(strings.NewReplacer(",", " ", "{", " ", "}", " ").Replace(n.NFT("list", "table", "inet", "recorder")))
	return slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return !slices.Contains(listed, addr.String()) })
}

// newAddressedNetwork returns a network with an address of each family, usable at once.
func newAddressedNetwork(t *testing.T) network {
	t.Helper()
	n := newNetwork(t)
	n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	n.address(func(link netlink.Link, addr *netlink.Addr) error {
		addr.Flags = unix.IFA_F_NODAD
		return netlink.AddrAdd(link, addr)
	}, "eth0", "2001:db8::1/64")
	// The kernel routes an IPv6 address once it has processed that the link is up, which a busy machine does later.
	wait.Until(t, "2001:db8::1 has a route", func() bool {
		return strings.Contains(n.Exec("ip", "-6", "route", "show", "table", "local"), "local 2001:db8::1 ")
	})
	return n
}

// IsLocal must agree with the tables, regardless of the addresses of interfaces.
func TestIsLocalAgreesWithTheTables(t *testing.T) {
	n := newAddressedNetwork(t)
	for _, args := range []string{
		"route add local 198.51.100.0/24 dev lo", "route add 203.0.113.0/24 dev eth0", "route add default via 192.0.2.254",
		"route add unreachable 10.1.0.0/16", "route add blackhole 10.2.0.0/16", "route add prohibit 10.3.0.0/16",
		"-6 route add local 2001:db8:1::/64 dev lo", "-6 route add 2001:db8:2::/64 dev eth0", "-6 route add unreachable 2001:db8:3::/64",
		// As for a transparent proxy: packets with a mark are local.
		"rule add fwmark 1 lookup 100", "route add local 0.0.0.0/0 dev lo table 100",
		"-6 rule add fwmark 1 lookup 100", "-6 route add local ::/0 dev lo table 100",
	} {
		n.Exec("ip", strings.Fields(args)...)
	}
	local := with(nil, "127.0.0.1", "127.9.9.9", "192.0.2.1", "198.51.100.1", "198.51.100.254", "::1", "2001:db8::1", "2001:db8:1::7")
	all := with(local, "192.0.2.2", "192.0.2.0", "192.0.2.255", "198.51.101.1", "203.0.113.1", "8.8.8.8", "10.1.0.1", "10.2.0.1", "10.3.0.1",
		"224.0.0.1", "255.255.255.255", "2001:db8::2", "2001:db8::", "2001:db8:2::1", "2001:db8:3::1", "2001:db8:9::1")
	if diff := cmp.Diff(local, n.localByTables(all), compareAddrs); diff != "" {
		t.Fatalf("local addresses in the tables (-want +got):\n%s", diff)
	}

	var routes *Routes
	n.do(func() (err error) { routes, err = OpenRoutes(); return err })
	defer routes.Close()
	var got []netip.Addr
	for _, addr := range append(all, netip.IPv4Unspecified(), netip.IPv6Unspecified()) {
		isLocal, err := routes.IsLocal(addr)
		if err != nil {
			t.Error(err)
		}
		if isLocal {
			got = append(got, addr)
		}
	}
	if diff := cmp.Diff(local, got, compareAddrs); diff != "" {
		t.Errorf("local addresses (-tables +got):\n%s", diff)
	}
	n.Exec("ip", "route", "del", "local", "198.51.100.0/24", "dev", "lo")
	if isLocal, err := routes.IsLocal(netip.MustParseAddr("198.51.100.1")); isLocal || err != nil {
		t.Errorf("after the route was deleted: %t, %v; want false", isLocal, err)
	}
}

// The addresses on a node are its own, and those to which a link leads without a gateway.
func TestIsOnNode(t *testing.T) {
	n := newAddressedNetwork(t)
	for _, args := range []string{
		"route add 10.244.1.7/32 dev eth0", "route add 10.244.2.0/24 via 192.0.2.2", "route add unreachable 10.9.0.0/16",
		"route add 10.244.3.0/24 nexthop via 192.0.2.3 nexthop via 192.0.2.4", "route add 10.244.4.0/24 via inet6 2001:db8::2 dev eth0",
		"route add default via 192.0.2.254", "-6 route add 2001:db8:1::7/128 dev eth0", "-6 route add 2001:db8:2::/64 via 2001:db8::2",
	} {
		n.Exec("ip", strings.Fields(args)...)
	}
	var routes *Routes
	n.do(func() (err error) { routes, err = OpenRoutes(); return err })
	defer routes.Close()
	for text, want := range map[string]bool{
		"127.0.0.1": true, "192.0.2.1": true, "10.244.1.7": true, "192.0.2.9": true, // a neighbour
		"10.244.1.8": false, "10.244.2.7": false, "10.244.3.7": false, "10.244.4.7": false, "10.9.0.1": false, "203.0.113.1": false,
		"::1": true, "2001:db8:1::7": true, "2001:db8:1::8": false, "2001:db8:2::7": false,
	} {
		if got, err := routes.IsOnNode(netip.MustParseAddr(text)); got != want || err != nil {
			t.Errorf("IsOnNode(%s) = %t, %v; want %t", text, got, err, want)
		}
	}
}

func TestClosedRoutesCloseEverything(t *testing.T) {
	n, before := newNetwork(t), openFiles(t)
	for range 10 {
		n.do(func() error {
			routes, err := OpenRoutes()
			if err == nil {
				routes.Close()
			}
			return err
		})
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files, %d before", after, before)
	}
}

func BenchmarkIsLocal(b *testing.B) {
	routes, err := OpenRoutes()
	if err != nil {
		b.Fatal(err)
	}
	defer routes.Close()
	for b.Loop() {
		if _, err := routes.IsLocal(netip.MustParseAddr("127.0.0.1")); err != nil {
			b.Fatal(err)
		}
	}
}
