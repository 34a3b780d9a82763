package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// AddAddr gives a machine one more address, as a person would with "ip address add". The others find it only if it is
// inside the fabric's own prefix, or by a route of theirs.
//
// It returns when packets to the address stay here. The kernel makes the route for that a moment after an IPv6
// address, which sockets may use at once; conntrack would go on sending a flow of that moment elsewhere.
func (n *Namespace) AddAddr(addr netip.Addr) error {
	if err := n.setUp(uplinkName, single(addr)); err != nil {
		return err
	}
	for deadline := time.Now().Add(addrTimeout); ; time.Sleep(time.Millisecond) {
		routes, err := n.links.RouteGet(addr.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("adding %s to %s: %w", addr, n.Name, errors.Join(errNotLocal, err))
		}
	}
}

// addrTimeout is how long the kernel may take for the route of an IPv6 address. Mostly that is some milliseconds. But the
// kernel makes it in one queue of work for all namespaces, and so it may come behind the end of many others.
const addrTimeout = time.Minute

var errNotLocal = errors.New("the kernel has no route that keeps its packets here")

// RemoveAddr removes an address that AddAddr gave.
func (n *Namespace) RemoveAddr(addr netip.Addr) error {
	link, err := n.link(uplinkName)
	if err != nil {
		return err
	}
	if err := n.links.AddrDel(link, address(single(addr))); err != nil {
		return fmt.Errorf("removing %s from %s: %w", addr, n.Name, err)
	}
	return nil
}

// RouteVia makes a machine send what is for a prefix to another machine of the fabric: a host reaches external IPs
// through a node then, and a node answers a host through the other node that its question came by.
func (n *Namespace) RouteVia(to netip.Prefix, via *Namespace) error {
	return n.addRoute(route{to: to, via: via.addrOf(to), link: uplinkName})
}
