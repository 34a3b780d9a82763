package model

import "testing"

func TestAllowedSources(t *testing.T) {
	const vips = "203.0.113.1 203.0.113.2 2001:db8::1"
	tests := map[string]struct {
		ranges string
		vips   string
		node   string // its addresses
		ipv4   string
		ipv6   string
	}{
		"without ranges, all clients": {vips: vips, node: "192.0.2.10 fd00::10"},
		"the ranges of each family alone": {
			ranges: "198.51.100.0/24 2001:db8:9::/48 198.51.102.0/24", vips: vips, node: "192.0.2.10 fd00::10",
			ipv4: "198.51.100.0/24 198.51.102.0/24", ipv6: "2001:db8:9::/48",
		},
		"a family without ranges is open, though the other one has some": {
			ranges: "198.51.100.0/24", vips: vips, node: "192.0.2.10 fd00::10", ipv4: "198.51.100.0/24",
		},
		"a node inside the ranges may send from the addresses themselves, of its own family": {
			ranges: "192.0.2.0/24 2001:db8:9::/48", vips: vips, node: "192.0.2.10 fd00::10",
			ipv4: "192.0.2.0/24 203.0.113.1/32 203.0.113.2/32", ipv6: "2001:db8:9::/48",
		},
		"a node inside both families' ranges": {
			ranges: "192.0.2.0/24 fd00::/64", vips: vips, node: "192.0.2.10 fd00::10",
			ipv4: "192.0.2.0/24 203.0.113.1/32 203.0.113.2/32", ipv6: "fd00::/64 2001:db8::1/128",
		},
		"one range with the node is enough": {
			ranges: "198.51.100.0/24 192.0.2.10/32", vips: "203.0.113.1", node: "192.0.2.10",
			ipv4: "198.51.100.0/24 192.0.2.10/32 203.0.113.1/32",
		},
		"an address that is inside already is not there twice": {
			ranges: "192.0.2.0/24 203.0.113.2/31", vips: vips, node: "192.0.2.10", ipv4: "192.0.2.0/24 203.0.113.2/31 203.0.113.1/32",
		},
		"an address that the load balancer names twice is there once": {
			ranges: "192.0.2.0/24", vips: "203.0.113.1 203.0.113.1", node: "192.0.2.10", ipv4: "192.0.2.0/24 203.0.113.1/32",
		},
		"a node that is not known": {ranges: "192.0.2.0/24", vips: vips, ipv4: "192.0.2.0/24"},
		"no address, no exception": {ranges: "192.0.2.0/24", node: "192.0.2.10", ipv4: "192.0.2.0/24"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := Service{
				LoadBalancerIPs: addrs(test.vips), ExternalIPs: addrs("192.0.2.200"), SourceRanges: prefixes(test.ranges),
			}
			node := Node{Addresses: addrs(test.node)}
			for family, want := range map[Family]string{IPv4: test.ipv4, IPv6: test.ipv6} {
				allowed := service.AllowedSources(family, node)
				if got := texts(allowed); got != want {
					t.Errorf("%s: %s may dial, want %s", family, got, want)
				}
				for i, prefix := range allowed {
					for _, other := range allowed[:i] {
						if prefix.Overlaps(other) {
							t.Errorf("%s: %s overlaps %s, which the kernel refuses", family, prefix, other)
						}
					}
				}
			}
			if got := texts(service.SourceRanges); got != test.ranges {
				t.Errorf("the Service's own ranges became %s", got)
			}
		})
	}
}
