//go:build linux

package interfaces

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

func (n network) list() []netip.Addr {
	n.t.Helper()
	var addrs []netip.Addr
	n.do(func() error {
		handle, err := openHandle()
		if err != nil {
			return err
		}
		defer handle.Close()
		addrs, err = list(handle)
		return err
	})
	return addrs
}

func TestListedAddresses(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(network)
		want    []netip.Addr
	}{
		"the loopback's addresses": {func(network) {}, loopback()},
		"both families, IPv4 first": {func(n network) {
			n.address(netlink.AddrAdd, "eth0", "2001:db8::1/64")
			n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
		}, loopback("192.0.2.1", "2001:db8::1")},
		"every scope": {func(n network) {
			n.address(netlink.AddrAdd, "eth0", "fe80::1/64")
			n.address(func(link netlink.Link, addr *netlink.Addr) error {
				addr.Scope = unix.RT_SCOPE_LINK
				return netlink.AddrAdd(link, addr)
			}, "eth0", "192.0.2.1/24")
		}, loopback("192.0.2.1", "fe80::1")},
		"an address of two links once": {func(n network) {
			n.addLink("eth1")
			n.address(netlink.AddrAdd, "eth0", "fe80::1/64")
			n.address(netlink.AddrAdd, "eth1", "fe80::1/64")
		}, loopback("fe80::1")},
		"the own end of a point-to-point link": {func(n network) {
			n.address(func(link netlink.Link, addr *netlink.Addr) error {
				addr.Peer = &net.IPNet{IP: net.IPv4(192, 0, 2, 2), Mask: net.CIDRMask(32, 32)}
				return netlink.AddrAdd(link, addr)
			}, "eth0", "192.0.2.1/32")
		}, loopback("192.0.2.1")},
		"the addresses of a link that is down": {func(n network) {
			n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
			n.link("eth0", netlink.LinkSetDown)
		}, loopback("192.0.2.1")},
		"an IPv6 address that is tentative": {func(n network) {
			n.sysctl("net/ipv6/conf/default/dad_transmits", "1000")
			n.addCable("veth0", "veth1")
			n.address(netlink.AddrAdd, "veth0", "2001:db8::1/64")
			n.link("veth0", func(link netlink.Link) error {
				addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
				if err == nil && (len(addrs) != 1 || addrs[0].Flags&unix.IFA_F_TENTATIVE == 0) {
					n.t.Errorf("the link has %v, want one tentative address", addrs)
				}
				return err
			})
		}, loopback("2001:db8::1")},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			test.prepare(n)
			if diff := cmp.Diff(test.want, n.list(), compareAddrs); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAListWithoutAddressesIsEmptyAndNotNil(t *testing.T) {
	n := network{Namespace: netns.New(t), t: t}
	n.link("lo", netlink.LinkSetDown)
	n.link("lo", func(link netlink.Link) error {
		addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for i := range addrs {
			if err := netlink.AddrDel(link, &addrs[i]); err != nil {
				return err
			}
		}
		return err
	})
	if got := n.list(); got == nil || len(got) > 0 {
		t.Errorf("got %#v, want an empty list that is not nil", got)
	}
}

func TestLinkAddressesAreConverted(t *testing.T) {
	for name, test := range map[string]struct {
		listed net.IP
		want   []netip.Addr
	}{
		"an IPv4 address":                       {net.IP{192, 0, 2, 1}, []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"an IPv4-mapped one is an IPv4 address": {net.IPv4(192, 0, 2, 1), []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		"an IPv6 address":                       {net.ParseIP("2001:db8::1"), []netip.Addr{netip.MustParseAddr("2001:db8::1")}},
		"an address of another kind is skipped": {net.IP{7}, []netip.Addr{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := addrsOf([]netlink.Addr{{IPNet: &net.IPNet{IP: test.listed}}})
			if diff := cmp.Diff(test.want, got, compareAddrs); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
	if got := addrsOf([]netlink.Addr{{}}); len(got) > 0 {
		t.Errorf("an entry without an address becomes %v, want nothing", got)
	}
}

// The results of all attempts are merged. The next notification causes another listing.
func TestConstantlyChangingAddressesAreMerged(t *testing.T) {
	attempts := 0
	got, err := listFrom(func() ([]netlink.Addr, error) {
		attempts++
		addr, err := netlink.ParseAddr(fmt.Sprintf("192.0.2.%d/24", 1+attempts%3))
		if err != nil {
			t.Fatal(err)
		}
		return []netlink.Addr{*addr}, netlink.ErrDumpInterrupted
	})
	want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}
	if err != nil || !slices.Equal(got, want) || attempts != listAttempts {
		t.Errorf("listed %v, %v after %d attempts, want %v after %d", got, err, attempts, want, listAttempts)
	}
}
