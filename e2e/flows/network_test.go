package flows_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

const nodeName = "test-node"

// These are the addresses of kube-proxy's tables.
var (
	nodeAddrs = []netip.Addr{
		netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("192.168.99.11"),
		netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::2"),
	}
	podPrefixes     = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}
	outsidePrefixes = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2600:5200::/32")}
)

// network has the machines of one file's flows: the node with the proxy, another node, a pod for each pod address, and
// machines outside the cluster. Each dialled address is served where a packet would arrive without a proxy: on the
// node, or on one machine that has all other addresses. So no flow times out or is refused for lack of a server.
//
// The fabric's own addresses are inside the ServiceCIDR of kube-proxy's tables. No flow dials them.
type network struct {
	fabric      *fabric.Fabric
	node, other *fabric.Node
	outside     *fabric.Host
	machines    map[netip.Addr]*fabric.Namespace // by address
	served      map[netip.AddrPort]bool
	local       []netip.Addr // addresses of the node's interfaces
	conn        *nft.Conn

	objects  model.Change
	settings []string
	proxy    *syncer.Proxy // nil until there are settings
}

func newNetwork(t *testing.T, flows []flow, objects model.Change) *network {
	t.Helper()
	n := &network{fabric: fabrictest.New(t), machines: map[netip.Addr]*fabric.Namespace{}, served: map[netip.AddrPort]bool{}}
	for _, build := range []func() error{
		n.addNodes,
		func() error { return n.addEndpoints(objects) },
		func() error { return n.addClients(flows) },
		func() error { return n.addServers(flows) },
		n.openConn,
	} {
		if err := build(); err != nil {
			t.Fatalf("build the network: %v", err)
		}
	}
	t.Cleanup(func() { _ = n.conn.Close() })
	for _, f := range flows {
		reply, err := n.machines[f.from].RequestFrom(f.network, f.from, f.to, fabric.Timeout)
		if err != nil || reply.Server != f.to || reply.Client != reply.Local {
			t.Fatalf("connection from %s to %s without a proxy: got %+v, error %v", f.from, f.to, reply, err)
		}
	}
	return n
}

func (n *network) addNodes() (err error) {
	if n.node, err = n.fabric.AddNode(nodeName); err != nil {
		return err
	}
	if n.other, err = n.fabric.AddNode("other"); err != nil {
		return err
	}
	if n.outside, err = n.fabric.AddHost("elsewhere", n.node); err != nil {
		return err
	}
	for _, addr := range nodeAddrs {
		err = errors.Join(err, n.addAddr(addr, n.node.Namespace))
	}
	return err
}

// addAddr adds an address to a machine. Routes to the address must already exist.
func (n *network) addAddr(addr netip.Addr, machine *fabric.Namespace) error {
	n.machines[addr] = machine
	return machine.AddAddr(addr)
}

func (n *network) addPod(addr netip.Addr, node *fabric.Node) error {
	if n.machines[addr] != nil {
		return nil
	}
	pod, err := node.AddPod(addr.String())
	if err != nil {
		return err
	}
	n.machines[addr] = pod.Namespace
	if err := pod.AddAddr(addr); err != nil || node == n.node {
		return err
	}
	return n.node.RouteVia(single(addr), node.Namespace)
}

// addEndpoints adds the pods of EndpointSlices, each of which serves all ports of its EndpointSlice.
func (n *network) addEndpoints(objects model.Change) error {
	for _, slice := range objects.Slices {
		for _, endpoint := range slice.Endpoints {
			node := n.other
			if endpoint.Node == nodeName {
				node = n.node
			}
			if err := n.addPod(endpoint.Addr, node); err != nil {
				return err
			}
			for _, port := range slice.Ports {
				if err := n.serve(netip.AddrPortFrom(endpoint.Addr, port.Port)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// serve serves all protocols at an address, on the machine that has it.
func (n *network) serve(addr netip.AddrPort) error {
	if n.served[addr] {
		return nil
	}
	n.served[addr] = true
	_, err := n.machines[addr.Addr()].Serve(addr.Port(), addr.Addr())
	return err
}

// addClients adds the clients, and routes replies to them through the node. A client that is neither a pod nor outside
// is the node.
func (n *network) addClients(flows []flow) error {
	seen := map[netip.Addr]bool{}
	for _, f := range flows {
		if seen[f.from] {
			continue
		}
		seen[f.from] = true
		var err error
		switch {
		case n.machines[f.from] != nil:
		case isIn(podPrefixes, f.from):
			err = n.addPod(f.from, n.node)
		case isIn(outsidePrefixes, f.from):
			err = n.addOutside(f.from)
		default:
			err = n.addAddr(f.from, n.node.Namespace)
		}
		for _, machine := range []*fabric.Namespace{n.other.Namespace, n.outside.Namespace} {
			err = errors.Join(err, machine.RouteVia(single(f.from), n.node.Namespace))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *network) addOutside(addr netip.Addr) error {
	host, err := n.fabric.AddHost(addr.String(), n.node)
	if err != nil {
		return err
	}
	return errors.Join(n.addAddr(addr, host.Namespace), n.node.RouteVia(single(addr), host.Namespace))
}

// addServers serves the dialled addresses, and routes them through the node for clients outside the cluster.
func (n *network) addServers(flows []flow) error {
	routed := map[[2]netip.Addr]bool{}
	for _, f := range flows {
		addr := f.to.Addr()
		if n.machines[addr] == nil {
			if err := errors.Join(n.addAddr(addr, n.outside.Namespace), n.node.RouteVia(single(addr), n.outside.Namespace)); err != nil {
				return err
			}
		}
		if err := n.serve(f.to); err != nil {
			return err
		}
		pair := [2]netip.Addr{f.from, addr}
		if routed[pair] || !isIn(outsidePrefixes, f.from) {
			continue
		}
		routed[pair] = true
		if err := n.machines[f.from].RouteVia(single(addr), n.node.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// openConn opens the proxy's nftables connection, and reads the node's addresses.
func (n *network) openConn() error {
	return n.node.Do(func() (err error) {
		if n.conn, err = nft.Dial(nft.Options{Owned: true}); err != nil {
			return err
		}
		addrs, err := net.InterfaceAddrs()
		for _, addr := range addrs {
			prefix, parseErr := netip.ParsePrefix(addr.String())
			n.local, err = append(n.local, prefix.Addr()), errors.Join(err, parseErr)
		}
		return err
	})
}

// apply applies a change to the proxy, and waits until it is in the kernel.
func (n *network) apply(t *testing.T, change model.Change) {
	t.Helper()
	n.objects = n.objects.Merge(change)
	if n.proxy != nil {
		n.proxy.Apply(change)
		n.sync(t)
	}
}

// configure starts another proxy on the node if the settings differ.
func (n *network) configure(t *testing.T, settings []string) {
	t.Helper()
	if n.proxy != nil && slices.Equal(settings, n.settings) {
		return
	}
	n.settings = settings
	n.proxy = syncer.New(nodeName, configOf(t, settings), n.conn)
	n.proxy.Apply(n.objects.Merge(model.Change{LocalAddrs: n.local}))
	n.sync(t)
}

func (n *network) sync(t *testing.T) {
	t.Helper()
	report, err := n.proxy.Sync(t.Context())
	if err := errors.Join(err, report.CleanupErr); err != nil {
		t.Fatalf("sync: %v", err)
	}
}

func isIn(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// single returns the prefix that contains only the given address.
func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
