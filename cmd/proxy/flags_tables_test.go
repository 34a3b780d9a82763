package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func prefixTexts(prefixes []netip.Prefix) []string {
	var list []string
	for _, prefix := range prefixes {
		list = append(list, prefix.String())
	}
	return list
}

// parseTableFlags parses and checks some flags, in addition to those that are always required.
func parseTableFlags(t *testing.T, args ...string) (*tableFlags, error) {
	t.Helper()
	var flags tableFlags
	set := pflag.NewFlagSet("render", pflag.ContinueOnError)
	flags.register(set)
	if err := set.Parse(append(splitArgs("--manifests x --node node-a"), args...)); err != nil {
		t.Fatal(err)
	}
	err := flags.Validate()
	return &flags, err
}

func TestPodDetectionHasOneMode(t *testing.T) {
	ipv4 := ruleset.LocalTraffic{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	cni0 := ruleset.LocalTraffic{Interface: "cni0"}
	tests := map[string]struct {
		args string
		want ruleset.LocalTraffic
	}{
		"no pod is recognized by default": {"", ruleset.LocalTraffic{}},
		"a cluster CIDR needs no mode":    {"--cluster-cidr 10.244.0.0/16", ipv4},
		"mode ClusterCIDR":                {"--detect-local-mode ClusterCIDR --cluster-cidr 10.244.0.0/16", ipv4},
		"mode ClusterCIDR without a CIDR": {"--detect-local-mode ClusterCIDR", ruleset.LocalTraffic{}},
		"mode NodeCIDR":                   {"--detect-local-mode NodeCIDR", ruleset.LocalTraffic{PodCIDRs: true}},
		"a cluster CIDR has no effect in NodeCIDR": {
			"--detect-local-mode NodeCIDR --cluster-cidr 10.244.0.0/16", ruleset.LocalTraffic{PodCIDRs: true},
		},
		"a cluster CIDR is not validated in NodeCIDR": {"--detect-local-mode NodeCIDR --cluster-cidr x", ruleset.LocalTraffic{PodCIDRs: true}},
		"mode BridgeInterface":                        {"--detect-local-mode BridgeInterface --pod-bridge-interface cni0", cni0},
		"a cluster CIDR has no effect in BridgeInterface": {
			"--detect-local-mode BridgeInterface --pod-bridge-interface cni0 --cluster-cidr 10.244.0.0/16", cni0,
		},
		"mode InterfaceNamePrefix": {
			"--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth", ruleset.LocalTraffic{InterfacePrefix: "veth"},
		},
		"a prefix as long as a name is a name": {
			"--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth-0123456789",
			ruleset.LocalTraffic{Interface: "veth-0123456789"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			flags, err := parseTableFlags(t, splitArgs(test.args)...)
			expectError(t, err, "")
			if diff := cmp.Diff(test.want, flags.settings.Tables(nil).LocalTraffic, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("local traffic (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidPodDetectionIsRejected(t *testing.T) {
	bridge := func(name string) []string {
		return []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", name}
	}
	prefix := func(name string) []string {
		return []string{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", name}
	}
	tests := map[string]struct {
		args []string
		err  string // empty if all flags are valid
	}{
		"an unknown mode": {
			splitArgs("--detect-local-mode clustercidr"), `--detect-local-mode: "clustercidr" must be one of: ClusterCIDR, NodeCIDR, `,
		},
		"a bridge without name": {
			splitArgs("--detect-local-mode BridgeInterface"), "--pod-bridge-interface: detectLocalMode BridgeInterface needs it",
		},
		"a prefix without name": {
			splitArgs("--detect-local-mode InterfaceNamePrefix"), "--pod-interface-name-prefix: detectLocalMode InterfaceNamePrefix needs it",
		},
		"a bridge without its mode": {
			splitArgs("--pod-bridge-interface cni0"), `"cni0" has no effect in mode ClusterCIDR; add --detect-local-mode BridgeInterface`,
		},
		"a prefix in the bridge's mode": {
			append(bridge("cni0"), "--pod-interface-name-prefix", "veth"),
			"has no effect in mode BridgeInterface; add --detect-local-mode InterfaceNamePrefix",
		},
		"a name of 15 bytes":           {bridge("abcdefghijklmno"), ""},
		"a name of 16 bytes":           {bridge("abcdefghijklmnop"), "has 16 bytes; the name of a link has at most 15"},
		"bytes count, not letters":     {bridge("üüüüüüüü"), "has 16 bytes"},
		"a prefix of 15 bytes":         {prefix("abcdefghijklmno"), ""},
		"a prefix of 16 bytes":         {prefix("abcdefghijklmnop"), "has 16 bytes"},
		"a slash":                      {bridge("a/b"), "cannot contain '/'"},
		"a space":                      {bridge("a b"), "cannot contain ' '"},
		"a newline":                    {bridge("a\n"), `cannot contain '\n'`},
		"a control character":          {bridge("a\x01"), `cannot contain '\x01'`},
		"a colon, as an alias has":     {bridge("eth0:1"), "cannot contain ':'"},
		"a wildcard, as nft writes it": {prefix("veth*"), "cannot contain '*'; give one name or name prefix, without wildcard"},
		"a wildcard, as iptables does": {prefix("veth+"), ""}, // a name may contain it
		"a quote":                      {prefix(`a"`), `cannot contain '"'`},
		"a backslash":                  {prefix(`a\`), `cannot contain '\\'`},
		"a name that no link can have": {bridge(".."), `".."`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseTableFlags(t, test.args...)
			expectError(t, err, test.err)
		})
	}
}

func TestTheHelpReportsHowPodsAreDistinguished(t *testing.T) {
	clients := []string{
		"--detect-local-mode MODE", "(default \"ClusterCIDR\")", "pods count as clients outside", "--pod-bridge-interface NAME",
		"--pod-interface-name-prefix PREFIX", "--masquerade-all",
	}
	nodePorts := []string{
		"--nodeport-addresses ADDRESSES", "(default primary)", "Without primary, a family without a CIDR serves them on all addresses",
	}
	for command, parts := range map[string][]string{
		"explain": clients, "render": slices.Concat(clients, nodePorts), "run": slices.Concat(clients, nodePorts),
	} {
		help := strings.Join(strings.Fields(proxyCommand(t, command, "--help").stdout), " ")
		for _, part := range parts {
			if !strings.Contains(help, part) {
				t.Errorf("the help of %s lacks %q", command, part)
			}
		}
	}
}

func TestWhereNodePortsAreServed(t *testing.T) {
	const flag = "--nodeport-addresses"
	tests := map[string]struct {
		args []string
		want string // the CIDRs, and primary
		err  string
	}{
		"on the primary addresses by default": {nil, "primary", ""},
		"primary, if given":                   {splitArgs(flag + " primary"), "primary", ""},
		"nothing means primary":               {[]string{flag, ""}, "primary", ""},
		"CIDRs":                               {splitArgs(flag + " 192.0.2.0/24,2001:db8::/32"), "192.0.2.0/24,2001:db8::/32", ""},
		"several of one family":               {splitArgs(flag + " 192.0.2.0/24,198.51.100.0/24"), "192.0.2.0/24,198.51.100.0/24", ""},
		"all addresses":                       {splitArgs(flag + " 0.0.0.0/0,::/0"), "0.0.0.0/0,::/0", ""},
		"the flag twice":                      {splitArgs(flag + " 192.0.2.0/24 " + flag + " ::/0"), "192.0.2.0/24,::/0", ""},
		"spaces after the comma":              {[]string{flag, "192.0.2.0/24, ::/0"}, "192.0.2.0/24,::/0", ""},
		"bits after the prefix":               {splitArgs(flag + " 192.0.2.7/24"), "192.0.2.0/24", ""},
		"primary and CIDRs":                   {splitArgs(flag + " 192.0.2.0/24,primary,::/0"), "192.0.2.0/24,::/0,primary", ""},
		"primary and loopback":                {splitArgs(flag + " primary,localhost"), "127.0.0.0/8,::1/128,primary", ""},
		"primary twice":                       {splitArgs(flag + " primary,primary"), "primary", ""},
		"primary with a capital":              {splitArgs(flag + " Primary"), "", "write primary in lower case"},
		"an IPv4 address":                     {splitArgs(flag + " 192.0.2.7"), "", "write 192.0.2.7/32"},
		"an IPv6 address":                     {splitArgs(flag + " 2001:db8::7"), "", "write 2001:db8::7/128"},
		"the word all":                        {splitArgs(flag + " all"), "0.0.0.0/0,::/0", ""},
		"the word all in capitals":            {splitArgs(flag + " ALL"), "", "write all in lower case"},
		"the word localhost":                  {splitArgs(flag + " localhost"), "127.0.0.0/8,::1/128", ""},
		"the name of a link":                  {splitArgs(flag + " eth0"), "", `"eth0" is not a CIDR`},
		"an IPv4 range in IPv6 form":          {splitArgs(flag + " ::ffff:192.0.2.0/120"), "", "write it as IPv4"},
		"an IPv4 address in IPv6 form":        {splitArgs(flag + " ::ffff:192.0.2.7"), "", "write 192.0.2.7/32"},
		"a trailing comma":                    {splitArgs(flag + " 192.0.2.0/24,"), "", `"" is not a CIDR`},
		"two mistakes": {
			splitArgs(flag + " 192.0.2.7,eth0"), "", "write 192.0.2.7/32\n--nodeport-addresses: \"eth0\" is not a CIDR",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			flags, err := parseTableFlags(t, test.args...)
			expectError(t, err, test.err)
			served := flags.settings.Tables(nil).NodePorts
			addresses := prefixTexts(served.Prefixes)
			if served.Primary {
				addresses = append(addresses, "primary")
			}
			if got := strings.Join(addresses, ","); got != test.want {
				t.Errorf("served on %q, want %q", got, test.want)
			}
		})
	}
}
