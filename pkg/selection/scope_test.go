package selection

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func addrs(texts ...string) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs
}

func prefixes(texts ...string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

func TestNodePortsAreServedOnTheAddressesThatTheSettingNames(t *testing.T) {
	cluster := model.NewCluster("node-1")
	local := addrs("127.0.0.1", "172.30.0.1", "192.168.0.1", "::1", "fd00:30::1", "fe80::1")
	cluster.Apply(model.Change{
		Nodes:      map[string]*model.Node{"node-1": {Name: "node-1", Addresses: addrs("172.30.0.1")}},
		LocalAddrs: local,
	})
	for name, c := range map[string]struct {
		setting model.NodePortAddresses
		want    []netip.Addr
	}{
		"without a setting on all but loopback": {
			model.NodePortAddresses{}, addrs("172.30.0.1", "192.168.0.1", "fd00:30::1", "fe80::1"),
		},
		"primary: on those the Node object names, in no family without one": {
			model.NodePortAddresses{Primary: true}, addrs("172.30.0.1"),
		},
		"prefixes: on those inside, and in the other family on all": {
			model.NodePortAddresses{Prefixes: prefixes("192.168.0.0/16")}, addrs("192.168.0.1", "fd00:30::1", "fe80::1"),
		},
		"prefixes of both families": {
			model.NodePortAddresses{Prefixes: prefixes("172.16.0.0/12", "fd00::/8")}, addrs("172.30.0.1", "fd00:30::1"),
		},
		"a prefix that the node has no address in": {
			model.NodePortAddresses{Prefixes: prefixes("198.51.100.0/24", "2001:db8::/32")}, nil,
		},
		"the prefix of everything is no reason to serve loopback": {
			model.NodePortAddresses{Prefixes: prefixes("0.0.0.0/0", "::/0")}, addrs("172.30.0.1", "192.168.0.1", "fd00:30::1", "fe80::1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			scope := ScopeOf(cluster, c.setting, nil)
			opts := cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty()}
			if diff := cmp.Diff(c.want, scope.NodePorts, opts); diff != "" {
				t.Errorf("addresses with node ports (-want +got):\n%s", diff)
			}
			for _, addr := range c.want {
				if !scope.ServesNodePorts(addr) {
					t.Errorf("%s is said not to serve node ports", addr)
				}
			}
			if scope.ServesNodePorts(netip.MustParseAddr("127.0.0.1")) {
				t.Error("loopback is said to serve node ports")
			}
		})
	}
}

func TestAnAddressTellsWhereAClientIs(t *testing.T) {
	local := addrs("172.30.0.1", "fd00:30::1")
	for name, c := range map[string]struct {
		pods   []netip.Prefix
		client string
		want   Place
	}{
		"this node's own address":                         {prefixes("10.244.0.0/16"), "172.30.0.1", Inside},
		"loopback, whether or not the node's list has it": {prefixes("10.244.0.0/16"), "127.0.0.1", Inside},
		"a pod":                                    {prefixes("10.244.0.0/16", "fd00:244::/32"), "fd00:244::7", Inside},
		"a pod in the second of two ranges":        {prefixes("10.244.0.0/16", "10.245.0.0/16"), "10.245.0.7", Inside},
		"another machine":                          {prefixes("10.244.0.0/16"), "172.30.0.201", Outside},
		"the family's pods are unknown":            {prefixes("10.244.0.0/16"), "fd00:244::7", Uncertain},
		"this node, although the pods are unknown": {nil, "fd00:30::1", Inside},
	} {
		t.Run(name, func(t *testing.T) {
			scope := Scope{Pods: c.pods, Local: local}
			if got := scope.PlaceOf(netip.MustParseAddr(c.client)); got != c.want {
				t.Errorf("PlaceOf(%s) = %d, want %d", c.client, got, c.want)
			}
		})
	}
}
