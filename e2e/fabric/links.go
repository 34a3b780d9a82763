package fabric

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	switchName = "br0"
	uplinkName = "eth0" // of nodes, hosts and pods
)

// addBridge adds a bridge without ports. Neighbour solicitations are multicast; without multicast snooping the bridge
// floods them at once.
func (n *Namespace) addBridge(name string) error {
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}, MulticastSnooping: &snooping}
	if err := n.links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge %s to %s: %w", name, n.Name, err)
	}
	return nil
}

// connect adds a veth pair between two namespaces. It creates the far end inside the far namespace, so that its name
// cannot conflict with another link.
func connect(near *Namespace, nearName string, far *Namespace, farName string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nearName
	cable := &netlink.Veth{LinkAttrs: attrs, PeerName: farName, PeerNamespace: netlink.NsFd(far.FD())}
	if err := near.links.LinkAdd(cable); err != nil {
		return fmt.Errorf("connect %s (%s) to %s (%s): %w", near.Name, nearName, far.Name, farName, err)
	}
	return nil
}

// join makes a link a port of a bridge.
func (n *Namespace) join(bridgeName, port string) error {
	bridge, err := n.link(bridgeName)
	if err != nil {
		return err
	}
	link, err := n.link(port)
	if err != nil {
		return err
	}
	if err := n.links.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("make %s a port of %s: %w", port, bridgeName, err)
	}
	return n.setUp(port)
}

// setUp adds addresses to a link and sets it up.
func (n *Namespace) setUp(name string, addrs ...netip.Prefix) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	for _, prefix := range addrs {
		if err := n.links.AddrAdd(link, address(prefix)); err != nil {
			return fmt.Errorf("add %s to %s of %s: %w", prefix, name, n.Name, err)
		}
	}
	if err := n.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up %s of %s: %w", name, n.Name, err)
	}
	return nil
}

func address(prefix netip.Prefix) *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if prefix.Addr().IsLinkLocalUnicast() {
		addr.Scope = unix.RT_SCOPE_LINK // never selected as the source of a packet that leaves the link
	}
	return addr
}

// route is a route of a namespace.
type route struct {
	to   netip.Prefix
	via  netip.Addr // if invalid, the destination is on the link
	link string
	from netip.Addr // if invalid, the kernel selects the source address
}

func (n *Namespace) addRoute(r route) error {
	link, err := n.link(r.link)
	if err != nil {
		return err
	}
	netlinkRoute := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.to), Scope: netlink.SCOPE_LINK}
	if r.via.IsValid() {
		netlinkRoute.Gw = r.via.AsSlice()
		netlinkRoute.Scope = netlink.SCOPE_UNIVERSE
		netlinkRoute.Flags = int(netlink.FLAG_ONLINK)
	}
	if r.from.IsValid() {
		netlinkRoute.Src = r.from.AsSlice()
	}
	if err := n.links.RouteAdd(netlinkRoute); err != nil {
		return fmt.Errorf("add route for %s to %s: %w", r.to, n.Name, err)
	}
	return nil
}

func (n *Namespace) link(name string) (netlink.Link, error) {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s of %s: %w", name, n.Name, err)
	}
	return link, nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
