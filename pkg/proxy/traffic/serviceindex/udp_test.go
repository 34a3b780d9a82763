//go:build linux

package serviceindex

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// ofUDP turns a Service into a UDP one, with an external IP and a load balancer's address.
func ofUDP(s *model.Service) {
	s.Ports[0].Protocol = model.UDP
	s.ExternalIPs, s.LoadBalancerIPs = []netip.Addr{addrPort("192.0.2.1:1").Addr()}, []netip.Addr{addrPort("203.0.113.1:1").Addr()}
}

// The cases change a Service with two endpoints; the results are the frontends whose flows are scanned.
func TestWhichFlowsAreScanned(t *testing.T) {
	const onA, onB = "node-a 10.244.0.1", "node-b 10.244.1.1"
	const clusterIP, external, balancer, nodePort = "10.96.0.1:80", "192.0.2.1:80", "203.0.113.1:80", "172.30.0.1:30080"
	all := []string{clusterIP, nodePort, external, balancer}
	edited := func(edit func(*model.Service), endpoints ...string) func(*fixture) {
		return func(fx *fixture) {
			fx.apply("web", "10.96.0.1", func(s *model.Service) { ofUDP(s); edit(s) }, endpoints...)
			fx.accept("web")
		}
	}
	serving := func(endpoints ...string) func(*fixture) { return edited(func(*model.Service) {}, endpoints...) }
	web := model.ObjectName{Namespace: "default", Name: "web"}
	ranges := func(ranges ...string) func(*model.Service) {
		return func(s *model.Service) {
			for _, text := range ranges {
				s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(text))
			}
		}
	}
	for name, test := range map[string]struct {
		before, change func(*fixture)
		sync           selection.SyncState
		want           []string
	}{
		"the same again":                     {nil, serving(onA, onB), selection.SyncState{}, nil},
		"in another order":                   {nil, serving(onB, onA), selection.SyncState{}, nil},
		"an endpoint is added":               {nil, serving(onA, onB, "node-b 10.244.1.2"), selection.SyncState{}, nil},
		"an endpoint is removed":             {nil, serving(onA), selection.SyncState{}, all},
		"an endpoint is replaced":            {nil, serving(onA, "node-b 10.244.1.2"), selection.SyncState{}, all},
		"one that does not serve is removed": {serving(onA, onB+"!"), serving(onA), selection.SyncState{}, []string{nodePort}},
		"one no longer serves":               {nil, serving(onA, onB+"!"), selection.SyncState{}, all},
		"the last one is removed":            {nil, serving(), selection.SyncState{}, all},
		"the first one is added":             {serving(), serving(onA), selection.SyncState{}, all},
		"the Service is deleted":             {nil, func(fx *fixture) { fx.index.OnApplied(web, nil) }, selection.SyncState{}, all},
		"a full sync":                        {nil, serving(onA, onB), selection.SyncState{Full: true}, all},
		"a full sync without changes":        {nil, func(*fixture) {}, selection.SyncState{Full: true}, all},
		"an endpoint is added and removed": {
			nil, func(fx *fixture) { serving(onA, onB, "node-b 10.244.1.2")(fx); serving(onA, onB)(fx) }, selection.SyncState{}, all,
		},
		"a frontend is lost": {nil, func(fx *fixture) {
			fx.index.OnFrontendsLost(web, []model.Frontend{{Addr: addrPort(external).Addr(), Protocol: model.UDP, Port: 80}})
		}, selection.SyncState{}, []string{external}},
		"a frontend is removed": {nil, edited(func(s *model.Service) { s.ExternalIPs = nil }, onA, onB), selection.SyncState{},
			[]string{external}},
		"a frontend is new": {
			edited(func(s *model.Service) { s.ExternalIPs = nil }, onA, onB), serving(onA, onB), selection.SyncState{}, []string{external},
		},
		"a frontend without endpoints is new": {
			edited(func(s *model.Service) { s.ExternalIPs = nil }), serving(), selection.SyncState{}, []string{external},
		},
		"externalTrafficPolicy Local": {
			nil, edited(func(s *model.Service) { s.ExternalTrafficLocal = true }, onA, onB), selection.SyncState{}, all[1:],
		},
		"externalTrafficPolicy Cluster again": {
			edited(func(s *model.Service) { s.ExternalTrafficLocal = true }, onA, onB), serving(onA, onB), selection.SyncState{}, nil,
		},
		"both policies Local, and one moves to another node": {
			edited(func(s *model.Service) { s.InternalTrafficLocal, s.ExternalTrafficLocal = true, true }, onA, onB),
			edited(func(s *model.Service) { s.InternalTrafficLocal, s.ExternalTrafficLocal = true, true }, "node-b 10.244.0.1", onB),
			selection.SyncState{}, all,
		},
		"a policy Local, and one on another node is removed": {
			edited(func(s *model.Service) { s.ExternalTrafficLocal = true }, onA, onB),
			edited(func(s *model.Service) { s.ExternalTrafficLocal = true }, onA), selection.SyncState{}, all,
		},
		"a topology key excludes an endpoint": {
			nil, edited(func(s *model.Service) { s.Topology.Keys = []policy.Key{policy.Zone} }, onA, onB), selection.SyncState{}, all,
		},
		"fewer clients may connect": {
			edited(ranges("10.0.0.0/8", "192.0.2.0/24"), onA), edited(ranges("10.0.0.0/8"), onA), selection.SyncState{}, all,
		},
		"the first source range is added":  {nil, edited(ranges("10.0.0.0/8"), onA, onB), selection.SyncState{}, all},
		"the last source range is removed": {edited(ranges("10.0.0.0/8"), onA), serving(onA), selection.SyncState{}, nil},
		"a Service of TCP changes": {
			func(fx *fixture) { fx.apply("web", "10.96.0.1", nil, onA, onB); fx.accept("web") },
			func(fx *fixture) { fx.apply("web", "10.96.0.1", nil, onA); fx.accept("web") }, selection.SyncState{}, nil,
		},
		"node ports are served on another address": {nil, func(*fixture) {}, selection.SyncState{
			Scope: selection.Scope{NodePorts: []netip.Addr{addrPort("192.0.2.9:1").Addr()}},
		}, []string{nodePort}},
		"on all addresses, and one is new": {nil, func(*fixture) {}, selection.SyncState{
			Scope: selection.Scope{AllAddrFamilies: model.Families}, LocalAddrs: []netip.Addr{addrPort("192.0.2.9:1").Addr()},
		}, []string{nodePort}},
		"on all addresses, and a new one is loopback": {nil, func(*fixture) {}, selection.SyncState{
			Scope: selection.Scope{AllAddrFamilies: model.Families}, LocalAddrs: []netip.Addr{addrPort("127.0.0.2:1").Addr()},
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fx := newFixture(t)
			if test.before == nil {
				test.before = serving(onA, onB)
			}
			test.before(fx)
			fx.index.OnSynced(selection.SyncState{})
			<-fx.index.Changed()
			number := fx.index.Snapshot().Number
			test.change(fx)
			fx.index.OnSynced(test.sync)
			var got []string
			for _, origDst := range all {
				if fx.index.ChangedFrontend(fx.index.Snapshot(), addrPort(origDst), number) != nil {
					got = append(got, origDst)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("scanned (-want +got):\n%s", diff)
			}
			families := fx.index.Snapshot().ChangedAfter(number)
			isChanged := slices.Contains(families, model.IPv4)
			if isChanged != (len(test.want) > 0) || slices.Contains(families, model.IPv6) || isChanged && len(fx.index.Changed()) == 0 {
				t.Errorf("flows of %v changed, and %d signals were sent", families, len(fx.index.Changed()))
			}
			fx.index.OnSynced(selection.SyncState{Scope: test.sync.Scope, LocalAddrs: test.sync.LocalAddrs})
			if families := fx.index.Snapshot().ChangedAfter(number + 1); len(families) > 0 {
				t.Errorf("nothing changed, but flows of %v are scanned again", families)
			}
		})
	}
}

// These include current endpoints, removed ones, those of the frontend's former Service, and those that the kernel may
// or may not have applied before an error.
func TestWhichEndpointsANodePortHad(t *testing.T) {
	fx := newFixture(t)
	web := model.ObjectName{Namespace: "default", Name: "web"}
	number := func(port uint16) func(*model.Service) {
		return func(s *model.Service) { s.Ports[0].Protocol, s.Ports[0].NodePort = model.UDP, port }
	}
	check := func(title string, origDst string, want ...string) {
		t.Helper()
		f := fx.index.ChangedFrontend(fx.index.Snapshot(), addrPort(origDst), 0)
		if f == nil {
			t.Fatalf("%s: no frontend", title)
		}
		var got []string
		for _, endpoint := range []string{"10.244.0.1", "10.244.0.2", "10.244.0.3", "10.244.0.4"} {
			if fx.index.HadEndpoint(f, addrPort(endpoint+":8080")) {
				got = append(got, endpoint)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v were endpoints, want %v", title, got, want)
		}
	}
	const nodePort, other = "172.30.0.1:30080", "172.30.0.1:30081"
	fx.apply("web", "10.96.0.1", number(30080), "node-a 10.244.0.1", "node-a 10.244.0.2")
	fx.accept("web")
	fx.synced()
	check("at first", nodePort, "10.244.0.1", "10.244.0.2")
	fx.apply("web", "10.96.0.1", number(30080), "node-a 10.244.0.2")
	fx.accept("web")
	fx.synced()
	check("one was removed", nodePort, "10.244.0.1", "10.244.0.2")
	fx.apply("web", "10.96.0.1", number(30081), "node-a 10.244.0.2")
	fx.accept("web")
	fx.synced()
	check("the node port changed", nodePort, "10.244.0.1", "10.244.0.2")
	fx.apply("web", "10.96.0.1", number(30082), "node-a 10.244.0.2")
	fx.apply("next", "10.96.0.2", number(30081), "node-a 10.244.0.3")
	fx.accept("next", "web")
	fx.synced()
	check("another Service has it", other, "10.244.0.1", "10.244.0.2", "10.244.0.3")
	fx.apply("web", "10.96.0.1", number(30083), "node-a 10.244.0.4")
	fx.index.OnMaybeApplied(web, fx.index.Derive(fx.planner.Decide(web, model.Families)))
	fx.index.OnApplied(web, nil)
	fx.synced()
	check("a Service that may have had it for a moment", "172.30.0.1:30083", "10.244.0.1", "10.244.0.4")
}
