package fabric

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PowerOff simulates a power failure. First it unplugs the node, so that no peer notices the end of the processes; the
// given function ends them. Then it deletes the kernel's nftables rules and conntrack entries, and all links that
// others created, such as those of pods. Without a cable, a pod's connections take minutes to close, and its namespace
// would exist until then; deleting its link prevents that.
func (n *Node) PowerOff(end func() error) error {
	if err := n.Unplug(); err != nil {
		return err
	}
	return errors.Join(end(), n.deleteLinks(), n.Do(flushNetfilter))
}

// Unplug stops all packets on a node's cable. Everything else on the node continues.
func (n *Node) Unplug() error {
	port, err := n.fabric.bridge.link(portOf(n.number))
	if err != nil {
		return err
	}
	if err := n.fabric.bridge.links.LinkSetDown(port); err != nil {
		return fmt.Errorf("set down port of node %s: %w", n.Name, err)
	}
	return nil
}

// deleteLinks removes all links but the loopback and the cable.
func (n *Node) deleteLinks() error {
	links, err := n.links.LinkList()
	if err != nil {
		return fmt.Errorf("list links of node %s: %w", n.Name, err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == "lo" || name == uplinkName {
			continue
		}
		// The kernel removes the link of a pod if the pod's network ends at the same time.
		if err := n.links.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove link %s of node %s: %w", link.Attrs().Name, n.Name, err)
		}
	}
	return nil
}

// PowerOn makes the node's cable carry packets again.
func (n *Node) PowerOn() error { return n.fabric.bridge.setUp(portOf(n.number)) }

// flushNetfilter deletes all netfilter state in the network namespace of this thread.
func flushNetfilter() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, table := range tables {
		conn.DelTable(table)
	}
	flows, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack: %w", err)
	}
	defer flows.Close()
	if err := errors.Join(conn.Flush(), flows.ConntrackTableFlush(netlink.ConntrackTable)); err != nil {
		return fmt.Errorf("flush rules and conntrack: %w", err)
	}
	return nil
}
