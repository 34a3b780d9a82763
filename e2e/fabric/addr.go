package fabric

import (
	"fmt"
	"net/netip"
)

// AddAddr gives a machine one more address, as a person would with "ip address add". The others find it only if it is inside
// the fabric's own prefix, or by a route of theirs.
func (n *Namespace) AddAddr(addr netip.Addr) error {
	return n.setUp(uplinkName, single(addr))
}

// RemoveAddr takes an address away that AddAddr gave.
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

// RouteVia makes a machine send what is for a prefix to another machine of the fabric: a host reaches external IPs through a
// node then, and a node answers a host through the other node that its question came by.
func (n *Namespace) RouteVia(to netip.Prefix, via *Namespace) error {
	return n.addRoute(route{to: to, via: via.addrOf(to), link: uplinkName})
}
