package packets_test

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// interfaceAddrs returns the addresses of a node's interfaces.
func (c *cluster) interfaceAddrs(n *node) []netip.Addr {
	c.t.Helper()
	var addrs []netip.Addr
	err := n.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, addr := range all {
			prefix, parseErr := netip.ParsePrefix(addr.String())
			addrs, err = append(addrs, prefix.Addr()), errors.Join(err, parseErr)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return addrs
}

// reportAddrs reports the current addresses of a node's interfaces to its proxy.
func (c *cluster) reportAddrs(n *node) {
	c.t.Helper()
	n.local = c.interfaceAddrs(n)
	n.proxy.Apply(model.Change{LocalAddrs: n.local})
	c.sync(n)
}

// addAddrs adds addresses to a node without reporting them to its proxy.
func (c *cluster) addAddrs(n *node, addrs ...netip.Addr) {
	c.t.Helper()
	for _, addr := range addrs {
		if err := n.AddAddr(addr); err != nil {
			c.t.Fatal(err)
		}
	}
}

// machineWith adds a machine that has the addresses and serves on them. The first node reaches it there, and it replies
// through that node.
func (c *cluster) machineWith(name string, addrs ...netip.Addr) *fabric.Namespace {
	c.t.Helper()
	machine := c.addHost(name, c.nodes[0])
	for _, addr := range addrs {
		if err := errors.Join(machine.AddAddr(addr), c.nodes[0].RouteVia(single(addr), machine)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.serveOn(machine, servicePort, addrs...)
	return machine
}
