package fabric

import (
	"errors"
	"fmt"
	"net/netip"
)

// Node is a machine that forwards packets between its pods and other machines, and on which a service proxy runs.
type Node struct {
	*Namespace

	number int
	pods   int
	bridge string // the bridge that connects the pods' links; empty if each pod has a routed link
}

// Pod is a pod's network on a node.
type Pod struct {
	*Namespace

	// Node is the node on which the pod runs.
	Node *Node

	gateway string // the node's link to the pod
}

// These are the names of the links to a node's pods.
const (
	// PodLinkPrefix starts the name of the node's end of every pod's link.
	PodLinkPrefix = "pod"
	// PodBridge is the bridge of a node added by AddBridgeNode.
	PodBridge = "cbr0"
)

// The host end of every pod's link has these addresses; pods have no other neighbour.
var (
	podGatewayIPv4 = netip.MustParseAddr("169.254.1.1")
	podGatewayIPv6 = netip.MustParseAddr("fe80::1")
)

// AddNode adds a node, and routes between its pods and all other pods.
func (f *Fabric) AddNode(name string) (*Node, error) {
	number := len(f.nodes) + 1
	if number > lastNode {
		return nil, fmt.Errorf("add node %s: a fabric has at most %d nodes", name, lastNode)
	}
	ns, err := f.attach(name, number, true)
	if err != nil {
		return nil, fmt.Errorf("add node %s: %w", name, err)
	}
	ns.nodeName = name
	node := &Node{Namespace: ns, number: number}
	for _, other := range f.nodes {
		if err := errors.Join(node.routePodsOf(other), other.routePodsOf(node)); err != nil {
			return nil, fmt.Errorf("add node %s: %w", name, err)
		}
	}
	f.nodes = append(f.nodes, node)
	return node, nil
}

// AddBridgeNode adds a node that receives its pods' packets from one bridge. Pods still send everything through the
// node, also to each other: packets that the bridge forwards between its ports skip conntrack unless br_netfilter is
// loaded.
func (f *Fabric) AddBridgeNode(name string) (*Node, error) {
	node, err := f.AddNode(name)
	if err != nil {
		return nil, err
	}
	node.bridge = PodBridge
	if err := errors.Join(node.writeSysctlsIfPresent(routedBridgeSysctls), node.addBridge(PodBridge)); err != nil {
		return nil, err
	}
	return node, node.setUpGateway(PodBridge)
}

// setUpGateway adds the pods' gateway addresses to a link.
func (n *Namespace) setUpGateway(link string) error {
	return n.setUp(link, single(podGatewayIPv4), netip.PrefixFrom(podGatewayIPv6, 64))
}

// PodCIDRs returns the node's ranges of pod addresses.
func (n *Node) PodCIDRs() (ipv4, ipv6 netip.Prefix) {
	return netip.PrefixFrom(podIPv4(n.number, 0), 24), netip.PrefixFrom(podIPv6(n.number, 0), 64)
}

func (n *Node) routePodsOf(other *Node) error {
	ipv4, ipv6 := other.PodCIDRs()
	return errors.Join(
		n.addRoute(route{to: ipv4, via: other.IPv4, link: uplinkName}),
		n.addRoute(route{to: ipv6, via: other.IPv6, link: uplinkName}),
	)
}

// AddPod adds a pod to the node.
func (n *Node) AddPod(name string) (*Pod, error) {
	number := n.pods + 1
	if number > lastPod {
		return nil, fmt.Errorf("add pod %s: a node has at most %d pods", name, lastPod)
	}
	ns, err := n.fabric.addNamespace(name, podIPv4(n.number, number), podIPv6(n.number, number))
	if err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	ns.nodeName = n.Name
	pod := &Pod{Namespace: ns, Node: n}
	if err := pod.plugIn(fmt.Sprintf("%s%d", PodLinkPrefix, number)); err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	n.pods = number
	return pod, nil
}

// plugIn connects the pod to its node, by a routed point-to-point link or as a port of the node's bridge.
func (p *Pod) plugIn(port string) error {
	node, gateway := p.Node.Namespace, port
	if err := connect(node, port, p.Namespace, uplinkName); err != nil {
		return err
	}
	if p.Node.bridge == "" {
		if err := node.setUpGateway(port); err != nil {
			return err
		}
	} else {
		gateway = p.Node.bridge
		if err := node.join(gateway, port); err != nil {
			return err
		}
	}
	if err := p.setUp(uplinkName, single(p.IPv4), single(p.IPv6)); err != nil {
		return err
	}
	// The route sets the source address, because the node would otherwise use 169.254.1.1, the one on the link.
	p.gateway = gateway
	return errors.Join(
		node.addRoute(route{to: single(p.IPv4), link: gateway, from: node.IPv4}),
		node.addRoute(route{to: single(p.IPv6), link: gateway, from: node.IPv6}),
		p.addRoute(route{to: anyIPv4, via: podGatewayIPv4, link: uplinkName}),
		p.addRoute(route{to: anyIPv6, via: podGatewayIPv6, link: uplinkName}),
	)
}

// AddAddr adds an address to the pod and routes it from its node. Other nodes need a route of their own.
func (p *Pod) AddAddr(addr netip.Addr) error {
	node := p.Node
	return errors.Join(
		p.Namespace.AddAddr(addr),
		node.addRoute(route{to: single(addr), link: p.gateway, from: node.addrOf(single(addr))}),
	)
}
