package model

import (
	"net/netip"
	"testing"
)

// nodeAt returns a node in zone a with addresses and pod CIDRs.
func nodeAt(name, addresses, podCIDRs string) *Node {
	node := nodeWith(name, zoneLabel+"=a")
	node.Addresses, node.PodCIDRs = addrs(addresses), prefixes(podCIDRs)
	return node
}

// TestNodeAddressesAffectServicesWithSourceRanges: the clients that source ranges allow depend on the
// node's addresses.
func TestNodeAddressesAffectServicesWithSourceRanges(t *testing.T) {
	restricted, restricted6 := claimant("restricted", 1, clusterIP1).withLoadBalancerIPs(vip), claimant("restricted-6", 1, clusterIPv6)
	restricted.SourceRanges, restricted6.SourceRanges = prefixes("192.0.2.0/24"), prefixes("fd00::/64")
	keyed := serviceNamed("keyed", rackLabel)
	keyed.SourceRanges = prefixes("192.0.2.0/24")
	newcomer := serviceNamed("newcomer")
	newcomer.SourceRanges = prefixes("192.0.2.0/24")
	open := claimant("open", 1, clusterIP2).withLoadBalancerIPs("192.0.2.2")
	const affected = "keyed restricted restricted-6"
	tests := map[string]struct {
		change Change
		want   string
	}{
		"another address":               {changeOf(nodeAt("node-1", "192.0.2.11", "10.0.0.0/24")), affected},
		"an additional address":         {changeOf(nodeAt("node-1", "192.0.2.10 fd00::10", "10.0.0.0/24")), affected},
		"no address":                    {changeOf(nodeAt("node-1", "", "10.0.0.0/24")), affected},
		"the same address":              {changeOf(nodeAt("node-1", "192.0.2.10", "10.0.0.0/24")), ""},
		"other pod CIDRs":               {changeOf(nodeAt("node-1", "192.0.2.10", "10.0.9.0/24")), ""},
		"another node's address":        {changeOf(nodeAt("node-2", "192.0.2.99", "")), ""},
		"a new node":                    {changeOf(nodeAt("node-3", "192.0.2.99", "")), ""},
		"another node is deleted":       {Change{Nodes: map[string]*Node{"node-2": nil}}, ""},
		"the addresses of interfaces":   {Change{LocalAddrs: addrs("192.0.2.10 192.0.2.11")}, ""},
		"ServiceCIDRs":                  {Change{ServiceCIDRs: map[string][]netip.Prefix{"kubernetes": prefixes("10.96.0.0/16")}}, ""},
		"this node's object is deleted": {Change{Nodes: map[string]*Node{"node-1": nil}}, ""},
		"this node is not eligible": {
			changeOf(&Node{Name: "node-1", Labels: map[string]string{zoneLabel: "a"}, Addresses: addrs("192.0.2.10"),
				IneligibleReason: "reason"}), "",
		},
		"this node's rack and address": {
			changeOf(&Node{Name: "node-1", Labels: map[string]string{zoneLabel: "a", rackLabel: "1"}, Addresses: addrs("192.0.2.11")}), affected,
		},
		"only this node's rack": {
			changeOf(&Node{Name: "node-1", Labels: map[string]string{zoneLabel: "a", rackLabel: "1"}, Addresses: addrs("192.0.2.10")}), "keyed",
		},
		"an address and a new Service with ranges": {
			changeOf(nodeAt("node-1", "192.0.2.11", ""), newcomer), "keyed newcomer restricted restricted-6",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := NewCluster("node-1")
			cluster.Apply(changeOf(
				restricted, restricted6, keyed, open, nodeAt("node-1", "192.0.2.10", "10.0.0.0/24"), nodeAt("node-2", "192.0.2.20", "")))
			if got := namesText(cluster.Apply(test.change)); got != test.want {
				t.Errorf("Apply returned %q, want %q", got, test.want)
			}
		})
	}
}

func TestSelfHasAddresses(t *testing.T) {
	cluster := NewCluster("node-1")
	if self := cluster.Self(); len(self.Addresses)+len(self.PodCIDRs) != 0 {
		t.Errorf("an unknown node has addresses: %+v", self)
	}
	cluster.Apply(changeOf(nodeAt("node-1", "192.0.2.10 fd00::10", "10.0.0.0/24"), nodeAt("node-2", "192.0.2.20", "10.0.1.0/24")))
	if self := cluster.Self(); texts(self.Addresses) != "192.0.2.10 fd00::10" || texts(self.PodCIDRs) != "10.0.0.0/24" {
		t.Errorf("Self returned %+v", self)
	}
}

func TestServiceCIDRsAndLocalAddrsFollowTheChanges(t *testing.T) {
	rangesOf := func(name, text string) Change {
		return Change{ServiceCIDRs: map[string][]netip.Prefix{name: prefixes(text)}}
	}
	deletionOf := func(name string) Change { return Change{ServiceCIDRs: map[string][]netip.Prefix{name: nil}} }
	steps := []struct {
		title        string
		change       Change
		cidrs, local string
	}{
		{"initially", Change{}, "", ""},
		{"the ranges of one object are sorted", rangesOf("kubernetes", "fd00:96::/112 10.96.0.0/16"), "10.96.0.0/16 fd00:96::/112", ""},
		{"more ranges, without duplicates", rangesOf("more", "10.95.0.0/16 10.96.0.0/16"), "10.95.0.0/16 10.96.0.0/16 fd00:96::/112", ""},
		{
			"addresses of interfaces", Change{LocalAddrs: addrs("192.0.2.10 127.0.0.1")},
			"10.95.0.0/16 10.96.0.0/16 fd00:96::/112", "192.0.2.10 127.0.0.1",
		},
		{"one object is deleted: a range of both stays", deletionOf("kubernetes"), "10.95.0.0/16 10.96.0.0/16", "192.0.2.10 127.0.0.1"},
		{"an object with another range", rangesOf("more", "10.94.0.0/16"), "10.94.0.0/16", "192.0.2.10 127.0.0.1"},
		{"an unknown object is deleted", deletionOf("ghost"), "10.94.0.0/16", "192.0.2.10 127.0.0.1"},
		{"a change without addresses", changeOf(serviceNamed("web")), "10.94.0.0/16", "192.0.2.10 127.0.0.1"},
		{"an address is removed", Change{LocalAddrs: addrs("127.0.0.1")}, "10.94.0.0/16", "127.0.0.1"},
		{"the last address is removed", Change{LocalAddrs: []netip.Addr{}}, "10.94.0.0/16", ""},
		{"the last range is removed", deletionOf("more"), "", ""},
	}
	cluster := NewCluster("node-1")
	for _, step := range steps {
		cluster.Apply(step.change)
		if got := texts(cluster.ServiceCIDRs()); got != step.cidrs {
			t.Errorf("%s: ServiceCIDRs are %q, want %q", step.title, got, step.cidrs)
		}
		if got := texts(cluster.LocalAddrs()); got != step.local {
			t.Errorf("%s: local addresses are %q, want %q", step.title, got, step.local)
		}
	}
}
