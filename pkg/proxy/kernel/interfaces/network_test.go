//go:build linux

package interfaces

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// compareAddrs lets cmp compare addresses.
var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// loopback returns the addresses that every test network has at first.
func loopback(more ...string) []netip.Addr {
	return with([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, more...)
}

// with returns addresses and more of them, sorted.
func with(addrs []netip.Addr, more ...string) []netip.Addr {
	addrs = slices.Clone(addrs)
	for _, text := range more {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// network is a namespace with addresses that a test changes.
type network struct {
	*netns.Namespace
	t *testing.T
}

// newNetwork creates a namespace with the link "eth0", a bridge without ports that is up. No link gets a link-local
// address.
func newNetwork(t *testing.T) network {
	t.Helper()
	n := network{Namespace: netns.New(t), t: t}
	n.sysctl("net/ipv6/conf/default/addr_gen_mode", "1")
	n.addLink("eth0")
	return n
}

// do runs f in the namespace and fails the test with its error.
func (n network) do(f func() error) {
	n.t.Helper()
	var err error
	n.Do(func() { err = f() })
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n network) sysctl(name, value string) {
	n.t.Helper()
	n.do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o600) })
}

func (n network) addLink(name string) {
	n.t.Helper()
	n.do(func() error {
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// addCable creates a veth pair whose ends are up.
func (n network) addCable(name, far string) {
	n.t.Helper()
	n.do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: far})
	})
	n.link(name, netlink.LinkSetUp)
	n.link(far, netlink.LinkSetUp)
}

// link calls f with a link.
func (n network) link(name string, f func(netlink.Link) error) {
	n.t.Helper()
	n.do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	})
}

// address calls f with a link and an address such as 192.0.2.1/24.
func (n network) address(f func(netlink.Link, *netlink.Addr) error, link, text string) {
	n.t.Helper()
	n.link(link, func(link netlink.Link) error {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		return f(link, addr)
	})
}

// addMany adds 500 addresses to eth0 and returns them with those of the loopback, sorted.
func (n network) addMany() []netip.Addr {
	n.t.Helper()
	all := loopback()
	n.link("eth0", func(link netlink.Link) error {
		for i := range 500 {
			text := fmt.Sprintf("10.1.%d.%d", i/200, i%200+1)
			addr, err := netlink.ParseAddr(text + "/32")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
			all = append(all, netip.MustParseAddr(text))
		}
		return nil
	})
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// watched is a watch that runs in a network.
type watched struct {
	t          *testing.T
	deliveries chan []netip.Addr
	log        *logs.Log
	end        context.CancelFunc
	ended      chan error
}

// run runs a watch until the test ends.
func (n network) run(m *monitor) watched {
	ctx, cancel := context.WithCancel(n.t.Context())
	running := watched{
		t: n.t, deliveries: make(chan []netip.Addr, 1000), log: logs.New(n.t, "the watch"), end: cancel, ended: make(chan error, 1),
	}
	m.log = running.log.Logger()
	deliver := m.deliver
	m.deliver = func(addrs []netip.Addr) {
		running.deliveries <- addrs
		if deliver != nil {
			deliver(addrs)
		}
	}
	if m.subscribe == nil {
		m.subscribe = subscribe
	}
	if m.list == nil {
		m.list = list
	}
	go func() {
		var err error
		n.Do(func() { err = m.run(ctx) })
		running.ended <- err
	}()
	n.t.Cleanup(func() { running.stop() })
	return running
}

// stop ends the watch, which must return no error.
func (w watched) stop() {
	w.t.Helper()
	w.end()
	if err := wait.Receive(w.t, "the watch ends", w.ended); err != nil {
		w.t.Errorf("the watch ended with %v", err)
	}
	w.ended <- nil // for the next stop
}

// next checks the next delivery.
func (w watched) next(want []netip.Addr) {
	w.t.Helper()
	if diff := cmp.Diff(want, wait.Receive(w.t, fmt.Sprintf("%v are delivered", want), w.deliveries), compareAddrs); diff != "" {
		w.t.Fatalf("delivered (-want +got):\n%s", diff)
	}
}

// until waits for a delivery, and ignores others before it.
func (w watched) until(want []netip.Addr) {
	w.t.Helper()
	for title := fmt.Sprintf("%v are delivered", want); !slices.Equal(wait.Receive(w.t, title, w.deliveries), want); {
	}
}
