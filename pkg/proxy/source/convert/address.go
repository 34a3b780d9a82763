package convert

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// readAddress reads an IP address as kube-proxy does and returns it in canonical form. Objects that are older than
// today's validation may contain octets with leading zeros, which are decimal, and IPv4-mapped IPv6 addresses. All
// programs on the node must interpret them alike, or this proxy would serve a different address than the proxy that it
// replaces.
func readAddress(path *field.Path, text string) (netip.Addr, field.ErrorList) {
	addr, ok := parseAddress(text)
	if !ok {
		return netip.Addr{}, field.ErrorList{field.Invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")}
	}
	return addr, nil
}

func parseAddress(text string) (addr netip.Addr, ok bool) {
	addr, ok = netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return addr.Unmap(), ok
}

// broadcast is the address to which DHCP clients send, among others.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// readUnicast reads an address of one machine, as a ClusterIP, an external IP and an endpoint's address must be.
func readUnicast(path *field.Path, text string) (netip.Addr, field.ErrorList) {
	addr, errs := readAddress(path, text)
	if len(errs) > 0 {
		return netip.Addr{}, errs
	}
	if reason := notUnicastReason(addr); reason != "" {
		return netip.Addr{}, field.ErrorList{field.Invalid(path, text, reason)}
	}
	return addr, nil
}

// notUnicastReason returns the reason why an address is not that of one machine; empty if it is. A loopback endpoint would
// direct every pod to the node's own private services, and a Service with a loopback, multicast or broadcast address
// would capture the nodes' traffic to themselves and to each other.
func notUnicastReason(addr netip.Addr) string {
	switch {
	case addr.IsUnspecified():
		return "may not be unspecified (0.0.0.0 or ::)"
	case addr.IsLoopback():
		return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case addr.IsLinkLocalUnicast():
		return "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case addr.IsMulticast():
		return "may not be in the multicast range (224.0.0.0/4, ff00::/8)"
	case addr == broadcast:
		return "may not be the broadcast address (255.255.255.255)"
	}
	return ""
}

// readPrefix reads a range in CIDR notation as leniently as readAddress, and clears the bits beyond its length.
func readPrefix(path *field.Path, text string) (netip.Prefix, field.ErrorList) {
	_, network, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, field.ErrorList{field.Invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")}
	}
	addr, _ := netip.AddrFromSlice(network.IP) // the parser guarantees 4 or 16 bytes
	addr = addr.Unmap()
	ones, bits := network.Mask.Size()
	return netip.PrefixFrom(addr, ones-(bits-addr.BitLen())), nil
}

// checkFamily returns an error if the family of an address differs from the one that a field states.
func checkFamily(path *field.Path, addr netip.Addr, want model.Family, source string) field.ErrorList {
	if model.FamilyOf(addr) == want {
		return nil
	}
	return field.ErrorList{field.Invalid(path, addr.String(), fmt.Sprintf("must be an %s address to match %s", want, source))}
}

// firstOfEachFamily returns the first item of each family, in their order.
func firstOfEachFamily[T any](items []T, familyOf func(T) model.Family) []T {
	var first []T
	seen := make(map[model.Family]bool)
	for _, item := range items {
		if family := familyOf(item); !seen[family] {
			seen[family] = true
			first = append(first, item)
		}
	}
	return first
}
