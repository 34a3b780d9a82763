package main

import (
	"strings"
	"testing"
)

func TestWhereNodePortsAreServed(t *testing.T) {
	const flag = "--nodeport-addresses"
	tests := map[string]struct {
		args []string
		want string // the CIDRs, and primary
		err  string
	}{
		"by default on the primary addresses": {nil, "primary", ""},
		"primary, in its own word":            {words(flag + " primary"), "primary", ""},
		"nothing means primary":               {[]string{flag, ""}, "primary", ""},
		"CIDRs":                               {words(flag + " 192.0.2.0/24,2001:db8::/32"), "192.0.2.0/24,2001:db8::/32", ""},
		"several of one family":               {words(flag + " 192.0.2.0/24,198.51.100.0/24"), "192.0.2.0/24,198.51.100.0/24", ""},
		"all addresses":                       {words(flag + " 0.0.0.0/0,::/0"), "0.0.0.0/0,::/0", ""},
		"the flag twice":                      {words(flag + " 192.0.2.0/24 " + flag + " ::/0"), "192.0.2.0/24,::/0", ""},
		"spaces behind the comma":             {[]string{flag, "192.0.2.0/24, ::/0"}, "192.0.2.0/24,::/0", ""},
		"bits behind the prefix":              {words(flag + " 192.0.2.7/24"), "192.0.2.0/24", ""},
		"primary beside CIDRs":                {words(flag + " 192.0.2.0/24,primary,::/0"), "192.0.2.0/24,::/0,primary", ""},
		"primary beside loopback":             {words(flag + " primary,localhost"), "127.0.0.0/8,::1/128,primary", ""},
		"primary twice":                       {words(flag + " primary,primary"), "primary", ""},
		"primary with a capital":              {words(flag + " Primary"), "", "write primary in lower case"},
		"an IPv4 address":                     {words(flag + " 192.0.2.7"), "", "write 192.0.2.7/32"},
		"an IPv6 address":                     {words(flag + " 2001:db8::7"), "", "write 2001:db8::7/128"},
		"the word all":                        {words(flag + " all"), "0.0.0.0/0,::/0", ""},
		"the word all in capitals":            {words(flag + " ALL"), "", "write all in lower case"},
		"the word localhost":                  {words(flag + " localhost"), "127.0.0.0/8,::1/128", ""},
		"the name of a link":                  {words(flag + " eth0"), "", `"eth0" is not a CIDR`},
		"an IPv4 range in IPv6 form":          {words(flag + " ::ffff:192.0.2.0/120"), "", "write it as IPv4"},
		"an IPv4 address in IPv6 form":        {words(flag + " ::ffff:192.0.2.7"), "", "write 192.0.2.7/32"},
		"a trailing comma":                    {words(flag + " 192.0.2.0/24,"), "", `"" is not a CIDR`},
		"two mistakes": {
			words(flag + " 192.0.2.7,eth0"), "", "write 192.0.2.7/32\n--nodeport-addresses: \"eth0\" is not a CIDR",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			flags, err := parseTableFlags(t, test.args...)
			expectError(t, err, test.err)
			served := flags.settings.Tables(nil).NodePorts
			on := texts(served.Prefixes)
			if served.Primary {
				on = append(on, "primary")
			}
			if got := strings.Join(on, ","); got != test.want {
				t.Errorf("served on %q, want %q", got, test.want)
			}
		})
	}
}
