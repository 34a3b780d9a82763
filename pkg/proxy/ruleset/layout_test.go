package ruleset_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

func prefixes(list ...string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, prefix := range list {
		parsed = append(parsed, netip.MustParsePrefix(prefix))
	}
	return parsed
}

var pods = ruleset.LocalTraffic{Prefixes: prefixes("10.244.0.0/16", "fd00:244::/32")}

// configurations are the settings of an administrator that change a chain, by the name of the file with the chains.
var configurations = map[string]struct {
	config       ruleset.Config
	serviceCIDRs []netip.Prefix
}{
	"cluster-cidr": {ruleset.Config{LocalTraffic: pods, NodePorts: model.NodePortAddresses{Primary: true}}, initialNodeState.ServiceCIDRs},
	"cluster-cidr-of-one-family": {
		ruleset.Config{LocalTraffic: ruleset.LocalTraffic{Prefixes: pods.Prefixes[1:]}, NodePorts: model.NodePortAddresses{Primary: true}},
		prefixes("10.96.0.0/16", "10.97.0.0/24"),
	},
	"bridge-interface": {
		ruleset.Config{LocalTraffic: ruleset.LocalTraffic{Interface: "cbr0"}, NodePorts: model.NodePortAddresses{Primary: true}}, nil,
	},
	"interface-name-prefix": {
		ruleset.Config{
			LocalTraffic: ruleset.LocalTraffic{InterfacePrefix: "veth"}, NodePorts: model.NodePortAddresses{Prefixes: prefixes("192.168.0.0/16")},
		}, nil,
	},
	"localhost": {ruleset.Config{NodePorts: model.NodePortAddresses{
		Primary: true, Localhost: true, Prefixes: prefixes("127.0.0.0/8"), // of one family alone
	}}, nil},
	"no-detector": {ruleset.Config{NodePorts: model.NodePortAddresses{Primary: true}}, nil},
	"masquerade-all-and-node-ports-everywhere": {
		ruleset.Config{LocalTraffic: pods, MasqueradeAll: true, NodePorts: model.NodePortAddresses{Prefixes: prefixes("0.0.0.0/0", "::/0")}}, nil,
	},
}

// TestTheStaticChainsOfEveryConfiguration, with a chain of Services that depends on it too.
func TestTheStaticChainsOfEveryConfiguration(t *testing.T) {
	for name, test := range configurations {
		t.Run(name, func(t *testing.T) {
			var got string
			for _, family := range model.Families {
				got += "# " + family.String() + "\n"
				chains := ruleset.StaticChains(family, test.config, ruleset.NodeState{ServiceCIDRs: test.serviceCIDRs})
				for _, chain := range append(chains, ruleset.RandomSlotChain(family, test.config, ruleset.SplitClass(2, 3))) {
					got += chain.Text(family)
				}
			}
			golden.File(t, filepath.Join("testdata", "chains", name+".nft"), got)
		})
	}
}

// TestAConfigurationWithOneFamilyMakesOneTable: the other family has none.
func TestAConfigurationWithOneFamilyMakesOneTable(t *testing.T) {
	for _, family := range model.Families {
		config := bothFamilies
		config.Families = []model.Family{family}
		mirror, plan := ruleset.PlanFullSync(config, services(desiredService(everyKind("web", 1), podsOnNode1(1)...)), initialNodeState, nil)
		var tables ruleset.Tables
		mustApply(t, &tables, plan.Batch)
		for _, other := range model.Families {
			if got := tables.Objects(other).Table; got != (other == family) {
				t.Errorf("configured for %s, a table of %s exists: %v", family, other, got)
			}
		}
		if mirror.Ports(family) != 1 {
			t.Errorf("the mirror counts %d ports of %s, want 1", mirror.Ports(family), family)
		}
	}
}

// TestNewNodeState covers the addresses on which node ports are served, unless all of them serve.
func TestNewNodeState(t *testing.T) {
	var present []netip.Addr
	for _, addr := range []string{"fd00:168::1", "192.168.0.2", "192.168.0.1", "127.0.0.1", "10.0.0.1", "192.168.0.1"} {
		present = append(present, netip.MustParseAddr(addr))
	}
	node := model.Node{Name: node1.Name, Addresses: []netip.Addr{present[2], netip.MustParseAddr("fd00:168::9")}}
	for name, test := range map[string]struct {
		nodePorts model.NodePortAddresses
		families  []model.Family
		want      []netip.Addr
	}{
		"primary: the address of its object, if an interface has it": {model.NodePortAddresses{Primary: true}, model.Families, present[2:3]},
		"by prefix, sorted, each once": {
			model.NodePortAddresses{Prefixes: prefixes("192.168.0.0/24", "fd00:168::/64")}, model.Families,
			[]netip.Addr{present[2], present[1], present[0]},
		},
		"none of a family in which all serve":     {model.NodePortAddresses{Prefixes: prefixes("192.168.0.2/32")}, model.Families, present[1:2]},
		"none if all addresses serve":             {model.NodePortAddresses{}, model.Families, nil},
		"none of a family that is not configured": {model.NodePortAddresses{Primary: true}, []model.Family{model.IPv6}, nil},
		"no loopback, even inside a prefix":       {model.NodePortAddresses{Prefixes: prefixes("127.0.0.0/8")}, model.Families, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := ruleset.Config{Families: test.families, NodePorts: test.nodePorts}
			got := ruleset.NewNodeState(config, node, present, initialNodeState.ServiceCIDRs)
			want := ruleset.NodeState{NodePortAddrs: test.want, ServiceCIDRs: initialNodeState.ServiceCIDRs}
			if diff := cmp.Diff(want, got, comparePorts); diff != "" {
				t.Errorf("node state (-want +got):\n%s", diff)
			}
		})
	}
}
