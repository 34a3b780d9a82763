package model

import (
	"net/netip"
	"slices"
)

// Node is what the proxy keeps of a v1 Node.
type Node struct {
	Name   string
	Labels map[string]string

	// Addresses are the node's own as its object names them, at most one a family: the first InternalIP, else the first
	// ExternalIP.
	Addresses []netip.Addr
	// PodCIDRs are the ranges of its pods' addresses, at most one a family: the first of spec.podCIDRs.
	PodCIDRs []netip.Prefix

	// NotEligible is why load balancers should spare this node: it is being deleted, drained or shut down, or about to be.
	// Empty: it stays. It does not affect decisions about Services.
	NotEligible string
}

// NodePortAddresses says on which of the node's addresses node ports are served: kube-proxy's setting of that name.
type NodePortAddresses struct {
	// Primary: on the addresses that the Node object names.
	Primary bool
	// Prefixes: on the addresses inside these prefixes too. Without Primary a family without a prefix has node ports on
	// all addresses, as in kube-proxy.
	Prefixes []netip.Prefix
	// Localhost: the proxy itself serves TCP node ports on loopback, in the families in which Prefixes name it. All other
	// traffic to node ports there is refused, and counted. The tables never serve loopback.
	Localhost bool
}

// LoopbackPrefix returns all loopback addresses of a family.
func LoopbackPrefix(family Family) netip.Prefix {
	if family == IPv6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}

// localhosts are the addresses on which the proxy itself listens.
var localhosts = map[Family]netip.Addr{IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}), IPv6: netip.IPv6Loopback()}

// Loopback returns the loopback address of a family on which the proxy itself serves TCP node ports, if it does. A
// range of all addresses does not count as a request for it, as in kube-proxy.
func (n NodePortAddresses) Loopback(family Family) (addr netip.Addr, served bool) {
	addr = localhosts[family]
	return addr, n.Localhost && slices.ContainsFunc(n.Prefixes, func(prefix netip.Prefix) bool {
		return prefix.Addr().IsLoopback() && prefix.Contains(addr)
	})
}

// All reports whether node ports of a family are served on every local address but loopback, whatever addresses there
// are.
func (n NodePortAddresses) All(family Family) bool {
	narrows := func(prefix netip.Prefix) bool { return FamilyOfPrefix(prefix) == family }
	isAll := func(prefix netip.Prefix) bool { return narrows(prefix) && prefix.Bits() == 0 }
	return !n.Primary && !slices.ContainsFunc(n.Prefixes, narrows) || slices.ContainsFunc(n.Prefixes, isAll)
}

// Choose returns those of the addresses that the node's interfaces have on which node ports of a family are served,
// sorted. It is not used where All is true. Loopback is not among them: see Loopback.
func (n NodePortAddresses) Choose(family Family, node Node, present []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	for _, addr := range present {
		if FamilyOf(addr) == family && !addr.IsLoopback() && n.includes(addr, node) {
			chosen = append(chosen, addr)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return slices.Compact(chosen)
}

func (n NodePortAddresses) includes(addr netip.Addr, node Node) bool {
	return n.Primary && slices.Contains(node.Addresses, addr) ||
		slices.ContainsFunc(n.Prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}
