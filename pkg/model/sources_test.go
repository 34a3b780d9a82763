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
		"no ranges: all clients": {vips: vips, node: "192.0.2.10 fd00::10"},
		"the ranges of each family": {
			ranges: "198.51.100.0/24 2001:db8:9::/48 198.51.102.0/24", vips: vips, node: "192.0.2.10 fd00::10",
			ipv4: "198.51.100.0/24 198.51.102.0/24", ipv6: "2001:db8:9::/48",
		},
		"a family without ranges is open, even if the other family has some": {
			ranges: "198.51.100.0/24", vips: vips, node: "192.0.2.10 fd00::10", ipv4: "198.51.100.0/24",
		},
		"a node inside the ranges may send from the load balancer's addresses in that family": {
			ranges: "192.0.2.0/24 2001:db8:9::/48", vips: vips, node: "192.0.2.10 fd00::10",
			ipv4: "192.0.2.0/24 203.0.113.1/32 203.0.113.2/32", ipv6: "2001:db8:9::/48",
		},
		"a node inside both families' ranges": {
			ranges: "192.0.2.0/24 fd00::/64", vips: vips, node: "192.0.2.10 fd00::10",
			ipv4: "192.0.2.0/24 203.0.113.1/32 203.0.113.2/32", ipv6: "fd00::/64 2001:db8::1/128",
		},
		"one range that contains the node is enough": {
			ranges: "198.51.100.0/24 192.0.2.10/32", vips: "203.0.113.1", node: "192.0.2.10",
			ipv4: "198.51.100.0/24 192.0.2.10/32 203.0.113.1/32",
		},
		"an address inside a range is not added": {
			ranges: "192.0.2.0/24 203.0.113.2/31", vips: vips, node: "192.0.2.10", ipv4: "192.0.2.0/24 203.0.113.2/31 203.0.113.1/32",
		},
		"a duplicate load balancer address is added once": {
			ranges: "192.0.2.0/24", vips: "203.0.113.1 203.0.113.1", node: "192.0.2.10", ipv4: "192.0.2.0/24 203.0.113.1/32",
		},
		"an unknown node":          {ranges: "192.0.2.0/24", vips: vips, ipv4: "192.0.2.0/24"},
		"no load balancer address": {ranges: "192.0.2.0/24", node: "192.0.2.10", ipv4: "192.0.2.0/24"},
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
					t.Errorf("%s: allowed sources %s, want %s", family, got, want)
				}
				for i, prefix := range allowed {
					for _, other := range allowed[:i] {
						if prefix.Overlaps(other) {
							t.Errorf("%s: %s overlaps %s, which the kernel rejects", family, prefix, other)
						}
					}
				}
			}
			if got := texts(service.SourceRanges); got != test.ranges {
				t.Errorf("AllowedSources changed the Service's ranges to %s", got)
			}
		})
	}
}
