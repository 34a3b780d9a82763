package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
)

// Fabric is a network of nodes, their pods, and hosts outside the cluster.
type Fabric struct {
	bridge  *Namespace
	nodes   []*Node
	hosts   int
	spawner *spawner
	serving sync.WaitGroup // server goroutines

	mu         sync.Mutex
	namespaces []*Namespace
	processes  []*Process
	servers    []*Server
}

// The gateway's addresses are those of the bridge. The gateway does not forward: a packet to an address that no node
// translates or routes is dropped there without a reply.
var (
	gatewayIPv4 = netip.MustParseAddr("172.30.0.254")
	gatewayIPv6 = netip.MustParseAddr("fd00:30::fe")
)

// New returns a fabric without nodes. Call Close to remove it.
func New() (*Fabric, error) {
	f := &Fabric{spawner: newSpawner()}
	if err := f.addSwitch(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fabric) addSwitch() error {
	ns, err := f.addNamespace("switch", gatewayIPv4, gatewayIPv6)
	if err != nil {
		return err
	}
	f.bridge = ns
	if err := ns.addBridge(switchName); err != nil {
		return err
	}
	return ns.setUp(switchName, fabricPrefix(gatewayIPv4), fabricPrefix(gatewayIPv6))
}

// Close ends all processes and servers of the fabric, and thereby its namespaces. It may be called twice.
func (f *Fabric) Close() error {
	f.mu.Lock()
	processes, servers, namespaces := f.processes, f.servers, f.namespaces
	f.processes, f.servers, f.namespaces = nil, nil, nil
	f.mu.Unlock()

	var errs []error
	for _, process := range processes {
		_ = process.Kill() // it may have exited already
	}
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	f.serving.Wait()
	f.spawner.end()
	for _, ns := range namespaces {
		errs = append(errs, ns.close())
	}
	return errors.Join(errs...)
}

// Nodes returns the nodes in the order in which they were added.
func (f *Fabric) Nodes() []*Node { return append([]*Node(nil), f.nodes...) }

// AddHost adds a machine outside the cluster. It reaches pods and ClusterIPs through the given node.
func (f *Fabric) AddHost(name string, via *Node) (*Host, error) {
	number := firstHost + f.hosts
	if number > lastHost {
		return nil, fmt.Errorf("add host %s: a fabric has at most %d hosts", name, lastHost-firstHost+1)
	}
	ns, err := f.attach(name, number, false)
	if err != nil {
		return nil, fmt.Errorf("add host %s: %w", name, err)
	}
	f.hosts++
	for _, prefix := range []netip.Prefix{PodsIPv4, PodsIPv6, ClusterIPv4, ClusterIPv6} {
		if err := ns.addRoute(route{to: prefix, via: via.addrOf(prefix), link: uplinkName}); err != nil {
			return nil, fmt.Errorf("add host %s: %w", name, err)
		}
	}
	return &Host{Namespace: ns}, nil
}

// attach adds a machine, a node or a host, to the bridge.
func (f *Fabric) attach(name string, number int, forwards bool) (*Namespace, error) {
	ns, err := f.addNamespace(name, fabricIPv4(number), fabricIPv6(number))
	if err != nil {
		return nil, err
	}
	if forwards {
		if err := ns.writeSysctls(forwardingSysctls); err != nil {
			return nil, err
		}
	}
	port := portOf(number)
	if err := connect(f.bridge, port, ns, uplinkName); err != nil {
		return nil, err
	}
	if err := f.bridge.join(switchName, port); err != nil {
		return nil, err
	}
	if err := ns.setUp(uplinkName, fabricPrefix(ns.IPv4), fabricPrefix(ns.IPv6)); err != nil {
		return nil, err
	}
	return ns, f.addDefaultRoutes(ns)
}

// portOf returns the name of the bridge port that a machine is connected to.
func portOf(number int) string { return fmt.Sprintf("port%d", number) }

// addDefaultRoutes lets a machine connect to addresses that exist only in NAT rules: the kernel looks up a route before
// it runs the output chain.
func (f *Fabric) addDefaultRoutes(ns *Namespace) error {
	return errors.Join(
		ns.addRoute(route{to: anyIPv4, via: gatewayIPv4, link: uplinkName}),
		ns.addRoute(route{to: anyIPv6, via: gatewayIPv6, link: uplinkName}),
	)
}

func (f *Fabric) addNamespace(name string, ipv4, ipv6 netip.Addr) (*Namespace, error) {
	ns, err := newNamespace(f, name, ipv4, ipv6)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.namespaces = append(f.namespaces, ns)
	return ns, nil
}
