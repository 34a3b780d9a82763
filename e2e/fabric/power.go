package fabric

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PowerOff takes a node away as a loss of power does. First its cable carries nothing any more: no peer hears of the end
// of its processes, which the given function brings about. Then its kernel forgets its nftables rules and connections,
// and loses the links that others made, such as those of pods: a pod's network outlives its processes for as long as its
// connections try to end, which takes minutes without a cable.
func (n *Node) PowerOff(end func() error) error {
	if err := n.Unplug(); err != nil {
		return err
	}
	return errors.Join(end(), n.loseLinks(), n.Do(forgetFlows))
}

// Unplug has a node's cable carry nothing any more. Everything else on the node goes on.
func (n *Node) Unplug() error {
	port, err := n.fabric.bridge.link(portOf(n.number))
	if err != nil {
		return err
	}
	if err := n.fabric.bridge.links.LinkSetDown(port); err != nil {
		return fmt.Errorf("setting the port of node %s down: %w", n.Name, err)
	}
	return nil
}

// loseLinks removes all links but the loopback and the cable.
func (n *Node) loseLinks() error {
	links, err := n.links.LinkList()
	if err != nil {
		return fmt.Errorf("listing the links of node %s: %w", n.Name, err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == "lo" || name == uplinkName {
			continue
		}
		// The kernel removes those of a pod whose network ends meanwhile.
		if err := n.links.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("removing link %s of node %s: %w", link.Attrs().Name, n.Name, err)
		}
	}
	return nil
}

// PowerOn lets its cable carry packets again.
func (n *Node) PowerOn() error { return n.fabric.bridge.setUp(portOf(n.number)) }

// forgetFlows empties what netfilter knows in the network namespace of this thread.
func forgetFlows() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("listing tables: %w", err)
	}
	for _, table := range tables {
		conn.DelTable(table)
	}
	flows, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening conntrack: %w", err)
	}
	defer flows.Close()
	if err := errors.Join(conn.Flush(), flows.ConntrackTableFlush(netlink.ConntrackTable)); err != nil {
		return fmt.Errorf("forgetting rules and connections: %w", err)
	}
	return nil
}
