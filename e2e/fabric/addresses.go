package fabric

import (
	"net/netip"
)

// These are the ranges of a fabric. In Kubernetes they are --cluster-cidr and --service-cluster-ip-range.
var (
	PodsIPv4    = netip.MustParsePrefix("10.244.0.0/16")
	PodsIPv6    = netip.MustParsePrefix("fd00:244::/32")
	ClusterIPv4 = netip.MustParsePrefix("10.96.0.0/16")
	ClusterIPv6 = netip.MustParsePrefix("fd00:96::/112")

	anyIPv4 = netip.MustParsePrefix("0.0.0.0/0")
	anyIPv6 = netip.MustParsePrefix("::/0")
)

// These are the numbers of the machines on the bridge. A machine's number is the last byte of its addresses; the
// gateway has 254.
const (
	lastNode  = 199
	firstHost = 201
	lastHost  = 250
	lastPod   = 254
)

func fabricIPv4(number int) netip.Addr { return netip.AddrFrom4([4]byte{172, 30, 0, byte(number)}) }

func fabricIPv6(number int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x30, 15: byte(number)})
}

func fabricPrefix(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(addr, 24)
	}
	return netip.PrefixFrom(addr, 64)
}

func podIPv4(node, pod int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 244, byte(node), byte(pod)})
}

// podIPv6 writes the node's number in hexadecimal: node 10 has fd00:244:a::/64.
func podIPv6(node, pod int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x02, 3: 0x44, 5: byte(node), 15: byte(pod)})
}

// single returns the prefix that contains only the given address.
func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
