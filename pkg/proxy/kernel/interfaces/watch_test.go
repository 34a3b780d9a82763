//go:build linux

package interfaces

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

func TestAddressesAreRedeliveredAfterAChange(t *testing.T) {
	for name, test := range map[string]struct {
		before, change func(network)
		first, then    []netip.Addr
	}{
		"an IPv4 address was added": {
			before: func(network) {},
			change: func(n network) { n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24") },
			first:  loopback(),
			then:   loopback("192.0.2.1"),
		},
		"an IPv6 address was added": {
			before: func(network) {},
			change: func(n network) { n.address(netlink.AddrAdd, "eth0", "2001:db8::1/64") },
			first:  loopback(),
			then:   loopback("2001:db8::1"),
		},
		"one was removed": {
			before: func(n network) { n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24") },
			change: func(n network) { n.address(netlink.AddrDel, "eth0", "192.0.2.1/24") },
			first:  loopback("192.0.2.1"),
			then:   loopback(),
		},
		"one moved to another link, and one was added": {
			before: func(n network) {
				n.addLink("eth1")
				n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
			},
			change: func(n network) {
				n.address(netlink.AddrAdd, "eth1", "192.0.2.1/24")
				n.address(netlink.AddrDel, "eth0", "192.0.2.1/24")
				n.address(netlink.AddrAdd, "eth1", "192.0.2.2/24")
			},
			first: loopback("192.0.2.1"),
			then:  loopback("192.0.2.1", "192.0.2.2"),
		},
		"a link was added with an address": {
			before: func(network) {},
			change: func(n network) {
				n.addLink("eth1")
				n.address(netlink.AddrAdd, "eth1", "2001:db8::1/64")
			},
			first: loopback(),
			then:  loopback("2001:db8::1"),
		},
		"a link was deleted with its addresses": {
			before: func(n network) {
				n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
				n.address(netlink.AddrAdd, "eth0", "2001:db8::1/64")
			},
			change: func(n network) { n.link("eth0", netlink.LinkDel) },
			first:  loopback("192.0.2.1", "2001:db8::1"),
			then:   loopback(),
		},
		"a link went down and lost its IPv6 addresses": {
			before: func(n network) {
				n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
				n.address(netlink.AddrAdd, "eth0", "2001:db8::1/64")
			},
			change: func(n network) { n.link("eth0", netlink.LinkSetDown) },
			first:  loopback("192.0.2.1", "2001:db8::1"),
			then:   loopback("192.0.2.1"),
		},
		"a link moved to another namespace": {
			before: func(n network) {
				n.addCable("veth0", "veth1")
				n.address(netlink.AddrAdd, "veth0", "192.0.2.1/24")
			},
			change: func(n network) {
				other := netns.New(n.t)
				var netNS *os.File
				other.Do(func() {
					var err error
					if netNS, err = os.Open("/proc/thread-self/ns/net"); err != nil {
						n.t.Fatal(err)
					}
				})
				defer func() { _ = netNS.Close() }()
				n.link("veth0", func(link netlink.Link) error { return netlink.LinkSetNsFd(link, int(netNS.Fd())) })
			},
			first: loopback("192.0.2.1"),
			then:  loopback(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			test.before(n)
			w := n.run(&monitor{})
			w.next(test.first)
			test.change(n)
			w.until(test.then)
		})
	}
}

func TestAddressesOfOtherNamespacesAreNotDelivered(t *testing.T) {
	n, other := newNetwork(t), newNetwork(t)
	w := n.run(&monitor{})
	w.next(loopback())
	other.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	n.address(netlink.AddrAdd, "eth0", "192.0.2.2/24")
	w.next(loopback("192.0.2.2"))
}

func TestUnchangedAddressesAreNotDelivered(t *testing.T) {
	n := newNetwork(t)
	deliveries := 0
	w := monitor{log: slog.New(slog.DiscardHandler), list: list, deliver: func([]netip.Addr) { deliveries++ }}
	n.do(func() error {
		s, err := subscribe()
		if err != nil {
			return err
		}
		defer s.close()
		return errors.Join(w.relist(s), w.relist(s))
	})
	if deliveries != 1 {
		t.Errorf("%d deliveries of the same addresses, want 1", deliveries)
	}
}

func TestANotificationThatChangesNoAddressDeliversNothing(t *testing.T) {
	n := newNetwork(t)
	n.address(netlink.AddrAdd, "eth0", "2001:db8::1/64")
	w := n.run(&monitor{})
	w.next(loopback("2001:db8::1"))
	for lifetime := range 20 {
		n.address(func(link netlink.Link, addr *netlink.Addr) error {
			addr.ValidLft, addr.PreferedLft = 3600+lifetime, 1800
			return netlink.AddrReplace(link, addr)
		}, "eth0", "2001:db8::1/64")
	}
	n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	w.next(loopback("192.0.2.1", "2001:db8::1"))
}

func TestABurstIsDeliveredAtOnce(t *testing.T) {
	n := newNetwork(t)
	added := make(chan []netip.Addr, 1)
	w := n.run(&monitor{deliver: func(addrs []netip.Addr) {
		if len(addrs) == len(loopback()) {
			added <- n.addMany() // while the watch waits for deliver to return
		}
	}})
	w.next(loopback())
	w.next(<-added)
}

func TestABurstWhileTheWatchRunsLosesNoAddress(t *testing.T) {
	n := newNetwork(t)
	w := n.run(&monitor{})
	w.next(loopback())
	w.until(n.addMany())
	n.link("eth0", netlink.LinkDel)
	w.until(loopback())
}

func TestAnOverflowLosesNoAddressAndIsLoggedOnce(t *testing.T) {
	n, added := newNetwork(t), make(chan []netip.Addr, 1)
	w := n.run(&monitor{
		subscribe: func() (*subscription, error) {
			s, err := subscribe()
			if err != nil {
				return nil, err
			}
			return s, s.socket.SetReceiveBufferSize(1, false) // the kernel makes it as small as it allows
		},
		deliver: func(addrs []netip.Addr) {
			if len(addrs) == len(loopback()) {
				added <- n.addMany() // while the watch does not read
			}
		},
	})
	w.next(loopback())
	all := <-added
	w.next(all)
	if got := w.log.Count("the kernel dropped address events"); got != 1 {
		t.Errorf("the overflow is logged %d times, want once", got)
	}
	n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	n.address(netlink.AddrAdd, "eth0", "2001:db8::1/64")
	w.until(with(all, "192.0.2.1", "2001:db8::1"))
}

func TestChangesAfterTheirNotificationAreFound(t *testing.T) {
	n, f, lists := newNetwork(t), newFlakySubscriber(), make(chan struct{}, 100)
	w := n.run(&monitor{
		subscribe: f.subscribe,
		list: func(handle *netlink.Handle) ([]netip.Addr, error) {
			lists <- struct{}{}
			return list(handle)
		},
		deliver: func(addrs []netip.Addr) {
			if len(addrs) == len(loopback("192.0.2.1")) {
				dropMemberships(t, <-f.subscriptions)
				n.address(netlink.AddrDel, "eth0", "192.0.2.1/24") // the watch is not notified of this
			}
		},
	})
	w.next(loopback())
	for range 2 { // at the start, and once more after relistInterval
		wait.Receive(t, "the addresses are listed twice", lists)
	}
	n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	w.next(loopback("192.0.2.1"))
	w.next(loopback())
}

// dropMemberships makes a subscription stop receiving notifications without an error.
func dropMemberships(t *testing.T, s *subscription) {
	t.Helper()
	for _, group := range []int{unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR} {
		if err := unix.SetsockoptInt(s.socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group); err != nil {
			t.Error(err)
		}
	}
}
