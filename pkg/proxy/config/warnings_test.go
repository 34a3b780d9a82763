package config

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func TestAFamilyWithoutACIDRIsUnrestricted(t *testing.T) {
	ipv4, ipv6 := netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")
	allIPv4, allIPv6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	for name, test := range map[string]struct {
		nodePorts model.NodePortAddresses
		want      []model.Family
	}{
		"primary addresses":  {model.NodePortAddresses{Primary: true}, nil},
		"primary and IPv4":   {model.NodePortAddresses{Primary: true, Prefixes: []netip.Prefix{ipv4}}, nil},
		"IPv4 alone":         {model.NodePortAddresses{Prefixes: []netip.Prefix{ipv4}}, []model.Family{model.IPv6}},
		"IPv6 alone":         {model.NodePortAddresses{Prefixes: []netip.Prefix{ipv6}}, []model.Family{model.IPv4}},
		"IPv4 and all IPv6":  {model.NodePortAddresses{Prefixes: []netip.Prefix{ipv4, allIPv6}}, nil},
		"a range of each":    {model.NodePortAddresses{Prefixes: []netip.Prefix{ipv4, ipv6}}, nil},
		"all IPv4 addresses": {model.NodePortAddresses{Prefixes: []netip.Prefix{allIPv4}}, []model.Family{model.IPv6}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, openFamilies(test.nodePorts, model.Families)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
