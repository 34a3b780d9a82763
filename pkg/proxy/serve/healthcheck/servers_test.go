//go:build linux

package healthcheck

import (
	"fmt"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func TestServersListenWhereNodePortsAreServed(t *testing.T) {
	both := checks{name("shop/web"): {Port: 30000, Endpoints: counts{model.IPv4: 1, model.IPv6: 2}}}
	for title, test := range map[string]struct {
		checks     checks
		on         selection.Scope
		ipv4, ipv6 []string // addresses whose responses have one endpoint, and two
		unserved   []string
	}{
		"on all addresses": {
			checks: both, on: allAddresses,
			ipv4: []string{"127.0.0.1:30000", "127.0.0.9:30000"}, ipv6: []string{"[::1]:30000"},
			unserved: []string{"127.0.0.1:30001", "[::1]:30001"},
		},
		"on some addresses": {
			checks: both, on: scopeOf("127.0.0.1", "127.0.0.2", "::1"),
			ipv4: []string{"127.0.0.1:30000", "127.0.0.2:30000"}, ipv6: []string{"[::1]:30000"},
			unserved: []string{"127.0.0.3:30000"},
		},
		"on all addresses of one family and some of the other": {
			checks: both, on: selection.Scope{NodePorts: scopeOf("127.0.0.1").NodePorts, AllAddrFamilies: []model.Family{model.IPv6}},
			ipv4: []string{"127.0.0.1:30000"}, ipv6: []string{"[::1]:30000"},
			unserved: []string{"127.0.0.2:30000"},
		},
		"not in a family without an address": {
			checks: both, on: scopeOf("127.0.0.1"), ipv4: []string{"127.0.0.1:30000"}, unserved: []string{"[::1]:30000"},
		},
		"nowhere without any address": {
			checks: both, unserved: []string{"127.0.0.1:30000", "[::1]:30000"},
		},
		"only in the families of the Service": {
			checks: checks{name("shop/web"): check(30000, 1)}, on: allAddresses,
			ipv4: []string{"127.0.0.1:30000"}, unserved: []string{"[::1]:30000"},
		},
		"not on a link-local address": {
			checks: both, on: scopeOf("127.0.0.1", "fe80::1", "::1"), ipv4: []string{"127.0.0.1:30000"}, ipv6: []string{"[::1]:30000"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t)
			n.sync(test.checks, test.on)
			for _, address := range test.ipv4 {
				n.expectServing(address, "shop/web", 1)
			}
			for _, address := range test.ipv6 {
				n.expectServing(address, "shop/web", 2)
			}
			for _, address := range test.unserved {
				n.expectClosed(address)
			}
		})
	}
}

func TestServersAreUpdated(t *testing.T) {
	for title, test := range map[string]struct {
		before, after     checks
		onBefore, onAfter selection.Scope
		bodies            map[string]string // Service and endpoints, by address
		refusing          []string
	}{
		"the number of endpoints": {
			before: checks{name("shop/web"): check(30000, 0)}, after: checks{name("shop/web"): check(30000, 7)},
			onBefore: scopeOf("127.0.0.1"), onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30000": "shop/web 7"},
		},
		"an added Service": {
			after:    checks{name("shop/web"): check(30000, 1)},
			onBefore: scopeOf("127.0.0.1"), onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30000": "shop/web 1"},
		},
		"a deleted Service": {
			before:   checks{name("shop/web"): check(30000, 1), name("shop/api"): check(30001, 2)},
			after:    checks{name("shop/api"): check(30001, 2)},
			onBefore: scopeOf("127.0.0.1"), onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30001": "shop/api 2"}, refusing: []string{"127.0.0.1:30000"},
		},
		"another port": {
			before: checks{name("shop/web"): check(30000, 1)}, after: checks{name("shop/web"): check(30001, 1)},
			onBefore: scopeOf("127.0.0.1"), onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30001": "shop/web 1"}, refusing: []string{"127.0.0.1:30000"},
		},
		"two Services that swap their ports": {
			before:   checks{name("shop/web"): check(30000, 1), name("shop/api"): check(30001, 2)},
			after:    checks{name("shop/web"): check(30001, 1), name("shop/api"): check(30000, 2)},
			onBefore: scopeOf("127.0.0.1"), onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30000": "shop/api 2", "127.0.0.1:30001": "shop/web 1"},
		},
		"an added and a removed address": {
			before: checks{name("shop/web"): check(30000, 1)}, after: checks{name("shop/web"): check(30000, 1)},
			onBefore: scopeOf("127.0.0.1", "127.0.0.2"), onAfter: scopeOf("127.0.0.2", "127.0.0.3"),
			bodies:   map[string]string{"127.0.0.2:30000": "shop/web 1", "127.0.0.3:30000": "shop/web 1"},
			refusing: []string{"127.0.0.1:30000"},
		},
		"from all addresses to one": {
			before: checks{name("shop/web"): check(30000, 1)}, after: checks{name("shop/web"): check(30000, 1)},
			onBefore: allAddresses, onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30000": "shop/web 1"}, refusing: []string{"127.0.0.2:30000"},
		},
		"from one address to all": {
			before: checks{name("shop/web"): check(30000, 1)}, after: checks{name("shop/web"): check(30000, 1)},
			onBefore: scopeOf("127.0.0.1"), onAfter: allAddresses,
			bodies: map[string]string{"127.0.0.1:30000": "shop/web 1", "127.0.0.2:30000": "shop/web 1"},
		},
		"the families": {
			before:   checks{name("shop/web"): check(30000, 1)},
			after:    checks{name("shop/web"): {Port: 30000, Endpoints: counts{model.IPv6: 3}}},
			onBefore: allAddresses, onAfter: allAddresses,
			bodies: map[string]string{"[::1]:30000": "shop/web 3"}, refusing: []string{"127.0.0.1:30000"},
		},
		"another Service that takes over the port": {
			before:   checks{name("a/web"): check(30000, 1)},
			after:    checks{name("b/web"): check(30000, 2)},
			onBefore: scopeOf("127.0.0.1"), onAfter: scopeOf("127.0.0.1"),
			bodies: map[string]string{"127.0.0.1:30000": "b/web 2"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t)
			n.sync(test.before, test.onBefore)
			n.sync(test.after, test.onAfter)
			for address, want := range test.bodies {
				var service string
				var endpoints int
				if _, err := fmt.Sscan(want, &service, &endpoints); err != nil {
					t.Fatal(err)
				}
				n.expectServing(address, service, endpoints)
			}
			for _, address := range test.refusing {
				n.expectClosed(address)
			}
		})
	}
}
