package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// AddAddr adds an address to a machine, as "ip address add" does. Other machines reach it only if it is inside the
// fabric's own prefix, or if they have a route to it.
//
// AddAddr returns when packets to the address stay on the machine. The kernel adds the local route of an IPv6 address a
// moment after the address, although sockets may use it at once. Conntrack would keep sending a flow that started
// before the route existed elsewhere.
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
			return fmt.Errorf("add %s to %s: %w", addr, n.Name, errors.Join(errNotLocal, err))
		}
	}
}

// addrTimeout bounds the wait for the route of an IPv6 address. It usually takes some milliseconds. The kernel uses one
// work queue for all namespaces, so the route may wait until many other namespaces are torn down.
const addrTimeout = time.Minute

var errNotLocal = errors.New("no local route")

// RemoveAddr removes an address that AddAddr added.
func (n *Namespace) RemoveAddr(addr netip.Addr) error {
	link, err := n.link(uplinkName)
	if err != nil {
		return err
	}
	if err := n.links.AddrDel(link, address(single(addr))); err != nil {
		return fmt.Errorf("remove %s from %s: %w", addr, n.Name, err)
	}
	return nil
}

// RouteVia routes a prefix through another machine of the fabric. With it, a host reaches external IPs through a node,
// or a node replies to a host through the other node that forwarded its request.
func (n *Namespace) RouteVia(to netip.Prefix, via *Namespace) error {
	return n.addRoute(route{to: to, via: via.addrOf(to), link: uplinkName})
}
