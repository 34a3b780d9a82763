package model

import (
	"net/netip"
	"slices"
)

// Node is the part of a v1 Node that the proxy uses.
type Node struct {
	Name   string
	Labels map[string]string

	// Addresses are the node's addresses in its object, at most one a family: the first InternalIP, or else the first
	// ExternalIP.
	Addresses []netip.Addr
	// PodCIDRs are the node's pod address ranges, at most one a family: the first of spec.podCIDRs.
	PodCIDRs []netip.Prefix

	// IneligibleReason is why load balancers should not send connections to this node: it is being deleted, drained or
	// shut down, or is about to be. It is empty if they may. It does not affect decisions about Services.
	IneligibleReason string
}

// NodePortAddresses are the addresses of the node that serve node ports: kube-proxy's setting of that name.
type NodePortAddresses struct {
	// Primary enables node ports on the addresses that the Node object names.
	Primary bool
	// Prefixes enables node ports on the local addresses inside these prefixes as well. Without Primary, a family without
	// a prefix has node ports on all addresses, as in kube-proxy.
	Prefixes []netip.Prefix
	// Localhost makes the proxy itself serve TCP node ports on loopback, in the families in which Prefixes contains it.
	// All other traffic to node ports there is refused and counted. The tables never serve loopback.
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

// Loopback returns the loopback address of a family, and whether the proxy itself serves TCP node ports there. A prefix
// that contains all addresses does not enable it, as in kube-proxy.
func (n NodePortAddresses) Loopback(family Family) (addr netip.Addr, served bool) {
	addr = localhosts[family]
	return addr, n.Localhost && slices.ContainsFunc(n.Prefixes, func(prefix netip.Prefix) bool {
		return prefix.Addr().IsLoopback() && prefix.Contains(addr)
	})
}

// All reports whether node ports of a family are served on every local address but loopback, whatever the addresses
// are.
func (n NodePortAddresses) All(family Family) bool {
	matchesFamily := func(prefix netip.Prefix) bool { return FamilyOfPrefix(prefix) == family }
	isAll := func(prefix netip.Prefix) bool { return matchesFamily(prefix) && prefix.Bits() == 0 }
	return !n.Primary && !slices.ContainsFunc(n.Prefixes, matchesFamily) || slices.ContainsFunc(n.Prefixes, isAll)
}

// Choose returns which of the addresses that are present on the node's interfaces serve node ports of a family, sorted.
// It is not used if All returns true. Loopback is never included: see Loopback.
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
