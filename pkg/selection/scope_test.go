package selection

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func parsePrefixes(texts ...string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

// fakeIsLocal is an IsLocal for which some addresses are the node's own. It counts its calls.
func fakeIsLocal(local []netip.Addr, lookups *int) IsLocal {
	return func(addr netip.Addr) (bool, error) {
		*lookups++
		return slices.Contains(local, addr), nil
	}
}

var errNoReply = errors.New("no reply from the kernel")

func failingIsLocal(netip.Addr) (bool, error) { return false, errNoReply }

func TestServesNodePorts(t *testing.T) {
	cluster := model.NewCluster("node-1")
	interfaces := parseAddrs("127.0.0.1", "172.30.0.1", "192.168.0.1", "::1", "fd00:30::1", "fe80::1")
	cluster.Apply(model.Change{
		Nodes:      map[string]*model.Node{"node-1": {Name: "node-1", Addresses: parseAddrs("172.30.0.1")}},
		LocalAddrs: interfaces,
	})
	// routed are local only by a route, foreign are not the node's.
	routed, foreign := parseAddrs("198.51.100.1", "2001:db8::1"), parseAddrs("172.30.0.2", "fd00:30::2")
	all := slices.Concat(interfaces, routed, foreign)
	for name, c := range map[string]struct {
		setting model.NodePortAddresses
		want    []netip.Addr
		lookups int
	}{
		"no setting: all addresses that the kernel considers local, except loopback": {
			model.NodePortAddresses{},
			parseAddrs("172.30.0.1", "192.168.0.1", "fd00:30::1", "fe80::1", "198.51.100.1", "2001:db8::1"), 8,
		},
		"primary: the addresses that the Node object names": {
			model.NodePortAddresses{Primary: true}, parseAddrs("172.30.0.1"), 0,
		},
		"prefixes: addresses inside, and all in the other family": {
			model.NodePortAddresses{Prefixes: parsePrefixes("192.168.0.0/16")}, parseAddrs("192.168.0.1", "fd00:30::1", "fe80::1", "2001:db8::1"), 4,
		},
		"prefixes of both families": {
			model.NodePortAddresses{Prefixes: parsePrefixes("172.16.0.0/12", "fd00::/8")}, parseAddrs("172.30.0.1", "fd00:30::1"), 0,
		},
		"a prefix whose addresses are local only by a route": {
			model.NodePortAddresses{Prefixes: parsePrefixes("198.51.100.0/24", "2001:db8::/32")}, nil, 0,
		},
		"prefixes of length zero do not include loopback": {
			model.NodePortAddresses{Prefixes: parsePrefixes("0.0.0.0/0", "::/0")},
			parseAddrs("172.30.0.1", "192.168.0.1", "fd00:30::1", "fe80::1", "198.51.100.1", "2001:db8::1"), 8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			scope, lookups := ScopeOf(cluster, model.Families, c.setting, nil), 0
			isLocal := fakeIsLocal(slices.Concat(interfaces, routed), &lookups)
			var got []netip.Addr
			for _, addr := range all {
				served, err := scope.ServesNodePorts(addr, isLocal)
				if err != nil {
					t.Errorf("%s: %v", addr, err)
				}
				if served {
					got = append(got, addr)
				}
			}
			opts := cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty()}
			if diff := cmp.Diff(c.want, got, opts); diff != "" {
				t.Errorf("addresses with node ports (-want +got):\n%s", diff)
			}
			if lookups != c.lookups {
				t.Errorf("%d lookups in the kernel, want %d", lookups, c.lookups)
			}
		})
	}
}

func TestOriginOf(t *testing.T) {
	local := parseAddrs("172.30.0.1", "fd00:30::1")
	for name, c := range map[string]struct {
		pods    []netip.Prefix
		client  string
		want    ClientOrigin
		lookups int
	}{
		"this node's own address":                  {parsePrefixes("10.244.0.0/16"), "172.30.0.1", Internal, 1},
		"loopback":                                 {parsePrefixes("10.244.0.0/16"), "127.0.0.1", Internal, 0},
		"a pod":                                    {parsePrefixes("10.244.0.0/16", "fd00:244::/32"), "fd00:244::7", Internal, 0},
		"a pod in the second of two ranges":        {parsePrefixes("10.244.0.0/16", "10.245.0.0/16"), "10.245.0.7", Internal, 0},
		"another machine":                          {parsePrefixes("10.244.0.0/16"), "172.30.0.201", External, 1},
		"the family's pods are unknown":            {parsePrefixes("10.244.0.0/16"), "fd00:244::7", UnknownOrigin, 1},
		"this node, although the pods are unknown": {nil, "fd00:30::1", Internal, 1},
	} {
		t.Run(name, func(t *testing.T) {
			lookups := 0
			scope := Scope{Pods: c.pods}
			got, err := scope.OriginOf(netip.MustParseAddr(c.client), fakeIsLocal(local, &lookups))
			if got != c.want || err != nil {
				t.Errorf("OriginOf(%s) = %d, %v; want %d", c.client, got, err, c.want)
			}
			if lookups != c.lookups {
				t.Errorf("%d lookups in the kernel, want %d", lookups, c.lookups)
			}
		})
	}
}

func TestAFailedRouteLookupIsAnError(t *testing.T) {
	scope := Scope{AllAddrFamilies: model.Families}
	if _, err := scope.ServesNodePorts(netip.MustParseAddr("172.30.0.1"), failingIsLocal); !errors.Is(err, errNoReply) {
		t.Errorf("ServesNodePorts: %v, want the lookup's error", err)
	}
	if _, err := scope.OriginOf(netip.MustParseAddr("172.30.0.1"), failingIsLocal); !errors.Is(err, errNoReply) {
		t.Errorf("OriginOf: %v, want the lookup's error", err)
	}
}
