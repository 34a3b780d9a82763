package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Frontend is an address that clients dial. A family's unspecified address stands for all addresses on which the node
// serves node ports.
type Frontend struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// FrontendKind is why a Service has a frontend.
type FrontendKind uint8

// The kinds, in display order. Only the first is for clients in the cluster; the others are external and serve every
// client.
const (
	ClusterIP FrontendKind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

// String returns the name of the kind in Kubernetes.
func (k FrontendKind) String() string {
	return [...]string{ClusterIP: "ClusterIP", LoadBalancerIP: "LoadBalancerIP", ExternalIP: "ExternalIP", NodePort: "NodePort"}[k]
}

// IsExternal reports whether externalTrafficPolicy, rather than internalTrafficPolicy, governs the frontend.
func (k FrontendKind) IsExternal() bool { return k != ClusterIP }

// rank orders the kinds by their origin: the API server assigns a ClusterIP to one Service only, and load balancer
// addresses and node ports come from the cluster's operators. But any user who may edit a Service can write any
// external IP.
func (k FrontendKind) rank() int {
	switch k {
	case ClusterIP:
		return 0
	case LoadBalancerIP, NodePort:
		return 1
	case ExternalIP:
	}
	return 2
}

// IsNodePort reports whether the frontend is a node port.
func (f Frontend) IsNodePort() bool { return f.Addr.IsUnspecified() }

// String returns the frontend in its usual notation: 10.96.0.10:53/UDP, or *:30080/TCP for a node port.
func (f Frontend) String() string {
	if f.IsNodePort() {
		return fmt.Sprintf("*:%d/%s", f.Port, f.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Addr, f.Port), f.Protocol)
}

// Compare orders frontends by address, protocol and port.
func (f Frontend) Compare(other Frontend) int {
	return cmp.Or(f.Addr.Compare(other.Addr), cmp.Compare(f.Protocol, other.Protocol), cmp.Compare(f.Port, other.Port))
}

// PortFrontend is a frontend of one Service port, with its kind.
type PortFrontend struct {
	Frontend
	Kind FrontendKind
}

// Frontends returns the addresses on which a port can be dialled in a family, by kind: the ClusterIP first, node ports
// last. An address with several kinds is returned once, with the first of them. A family without a ClusterIP has no
// frontends, as in kube-proxy.
func (s *Service) Frontends(port ServicePort, family Family) []PortFrontend {
	clusterIP, ok := s.ClusterIP(family)
	if !ok {
		return nil
	}
	frontend := Frontend{Addr: clusterIP, Protocol: port.Protocol, Port: port.Port}
	frontends := []PortFrontend{{frontend, ClusterIP}}
	if len(s.LoadBalancerIPs)+len(s.ExternalIPs) > 0 { // few Services have any
		seen := map[netip.Addr]bool{clusterIP: true}
		add := func(kind FrontendKind, addrs []netip.Addr) {
			for _, addr := range addrs {
				if FamilyOf(addr) == family && !seen[addr] {
					seen[addr] = true
					frontend.Addr = addr
					frontends = append(frontends, PortFrontend{frontend, kind})
				}
			}
		}
		add(LoadBalancerIP, s.LoadBalancerIPs)
		add(ExternalIP, s.ExternalIPs)
	}
	if port.NodePort != 0 {
		nodePort := Frontend{Addr: AnyAddr(family), Protocol: port.Protocol, Port: port.NodePort}
		frontends = append(frontends, PortFrontend{nodePort, NodePort})
	}
	return frontends
}

// AnyAddr returns the address of a node port's frontend: the family's unspecified address.
func AnyAddr(family Family) netip.Addr {
	if family == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// IsExternal reports whether a port has a frontend in a family that externalTrafficPolicy governs.
func (s *Service) IsExternal(port ServicePort, family Family) bool {
	clusterIP, ok := s.ClusterIP(family)
	if !ok {
		return false
	}
	isExternal := func(addr netip.Addr) bool { return FamilyOf(addr) == family && addr != clusterIP }
	return port.NodePort != 0 || slices.ContainsFunc(s.LoadBalancerIPs, isExternal) || slices.ContainsFunc(s.ExternalIPs, isExternal)
}

// AllowedSources returns the source ranges that may dial the Service's load-balancer addresses of a family. Empty means
// every client.
//
// If the node is inside the ranges, the Service's load-balancer addresses are allowed, too: if such an address is local
// on the node, it is the source of the node's own connections to it (kube-proxy does the same).
func (s *Service) AllowedSources(family Family, node Node) []netip.Prefix {
	var allowed []netip.Prefix
	containsNode := false
	for _, prefix := range s.SourceRanges {
		if FamilyOfPrefix(prefix) == family {
			allowed = append(allowed, prefix)
			containsNode = containsNode || slices.ContainsFunc(node.Addresses, prefix.Contains)
		}
	}
	if !containsNode {
		return allowed
	}
	ranges := SortPrefixes(allowed)
	seen := map[netip.Addr]bool{}
	for _, addr := range s.LoadBalancerIPs {
		if FamilyOf(addr) == family && !seen[addr] && !ranges.Contains(addr) {
			seen[addr] = true
			allowed = append(allowed, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return allowed
}
