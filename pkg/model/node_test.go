package model

import "testing"

func TestNodePortAddresses(t *testing.T) {
	const present = "fe80::1 192.0.2.20 127.0.0.1 10.0.0.5 ::1 192.0.2.10 fd00::10 127.0.0.53"
	everywhere := map[Family]bool{IPv4: true, IPv6: true}
	tests := map[string]struct {
		addresses  NodePortAddresses
		node       string // the addresses in its object
		present    string // on interfaces; those above if empty
		all        map[Family]bool
		ipv4, ipv6 string
	}{
		"primary: the addresses that the Node object names": {
			addresses: NodePortAddresses{Primary: true}, node: "192.0.2.10 fd00::10", ipv4: "192.0.2.10", ipv6: "fd00::10",
		},
		"primary: none in a family that the Node object does not name": {
			addresses: NodePortAddresses{Primary: true}, node: "192.0.2.10", ipv4: "192.0.2.10",
		},
		"primary: none for an unknown Node": {addresses: NodePortAddresses{Primary: true}},
		"primary: an address that no interface has is ignored": {
			addresses: NodePortAddresses{Primary: true}, node: "192.0.2.99 fd00::10", ipv6: "fd00::10",
		},
		"primary: loopback is ignored, even if the Node object names it": {
			addresses: NodePortAddresses{Primary: true}, node: "127.0.0.1 ::1",
		},
		"primary and prefixes: both": {
			addresses: NodePortAddresses{Primary: true, Prefixes: prefixes("10.0.0.0/8 fe80::/10")}, node: "192.0.2.10 fd00::10",
			ipv4: "10.0.0.5 192.0.2.10", ipv6: "fd00::10 fe80::1",
		},
		"primary and a prefix of one family: the other family has the addresses of the Node object": {
			addresses: NodePortAddresses{Primary: true, Prefixes: prefixes("10.0.0.0/8")}, node: "192.0.2.10", ipv4: "10.0.0.5 192.0.2.10",
		},
		"primary and a prefix of length zero: everywhere in its family": {
			addresses: NodePortAddresses{Primary: true, Prefixes: prefixes("::/0")}, node: "192.0.2.10", all: map[Family]bool{IPv6: true},
			ipv4: "192.0.2.10", ipv6: "fd00::10 fe80::1",
		},
		"primary and loopback: loopback is ignored": {
			addresses: NodePortAddresses{Primary: true, Prefixes: prefixes("127.0.0.0/8 ::1/128")}, node: "192.0.2.10 fd00::10",
			ipv4: "192.0.2.10", ipv6: "fd00::10",
		},
		"prefixes: the present addresses inside them, sorted": {
			addresses: NodePortAddresses{Prefixes: prefixes("192.0.2.0/24 fd00::/8")}, node: "10.0.0.5",
			ipv4: "192.0.2.10 192.0.2.20", ipv6: "fd00::10",
		},
		"prefixes: an address inside two of them is returned once": {
			addresses: NodePortAddresses{Prefixes: prefixes("192.0.2.0/24 192.0.2.0/28 fe80::/10")}, ipv4: "192.0.2.10 192.0.2.20", ipv6: "fe80::1",
		},
		"prefixes: an address of two interfaces is returned once": {
			addresses: NodePortAddresses{Prefixes: prefixes("192.0.2.0/24 fd00::/8")}, present: "192.0.2.20 192.0.2.10 192.0.2.20",
			ipv4: "192.0.2.10 192.0.2.20",
		},
		"prefixes: loopback is ignored": {
			addresses: NodePortAddresses{Prefixes: prefixes("127.0.0.0/8 ::1/128")},
		},
		"prefixes: an exact address that is not present is ignored": {
			addresses: NodePortAddresses{Prefixes: prefixes("192.0.2.99/32 fd00::99/128")},
		},
		"prefixes of one family: everywhere in the other family": {
			addresses: NodePortAddresses{Prefixes: prefixes("192.0.2.0/24")}, all: map[Family]bool{IPv6: true}, ipv4: "192.0.2.10 192.0.2.20",
		},
		"a prefix of length zero among others: everywhere in its family": {
			addresses: NodePortAddresses{Prefixes: prefixes("192.0.2.0/24 0.0.0.0/0 fd00::/8")}, all: map[Family]bool{IPv4: true},
			ipv4: "10.0.0.5 192.0.2.10 192.0.2.20", ipv6: "fd00::10",
		},
		"prefixes of length zero in both families: everywhere": {
			addresses: NodePortAddresses{Prefixes: prefixes("0.0.0.0/0 ::/0")}, all: everywhere,
			ipv4: "10.0.0.5 192.0.2.10 192.0.2.20", ipv6: "fd00::10 fe80::1",
		},
		"neither primary nor prefixes: everywhere": {all: everywhere},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.present == "" {
				test.present = present
			}
			node := Node{Addresses: addrs(test.node)}
			onInterfaces := addrs(test.present)
			for family, want := range map[Family]string{IPv4: test.ipv4, IPv6: test.ipv6} {
				if got := test.addresses.All(family); got != test.all[family] {
					t.Errorf("%s: All is %v, want %v", family, got, test.all[family])
				}
				if got := texts(test.addresses.Choose(family, node, onInterfaces)); got != want {
					t.Errorf("%s: node ports are served on %q, want %q", family, got, want)
				}
			}
			if got := texts(onInterfaces); got != test.present {
				t.Errorf("Choose modified the list of present addresses: %s", got)
			}
		})
	}
}
