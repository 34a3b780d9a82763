//go:build linux

package serviceindex

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// fixture is a cluster and an index that receives its decisions.
type fixture struct {
	t       testing.TB
	cluster *model.Cluster
	planner *selection.Planner
	index   *Index
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{t: t, cluster: model.NewCluster("node-a"), index: New(time.Minute)}
	f.planner = selection.NewPlanner(f.cluster)
	labels := func(zone string) map[string]string { return map[string]string{string(policy.Zone): zone} }
	f.cluster.Apply(model.Change{Nodes: map[string]*model.Node{
		"node-a": {Name: "node-a", Labels: labels("a")}, "node-b": {Name: "node-b", Labels: labels("b")},
	}})
	return f
}

// accept passes the decisions about Services to the index, as a sync does.
func (f *fixture) accept(services ...string) {
	for _, name := range services {
		object := model.ObjectName{Namespace: "default", Name: name}
		f.index.OnApplied(object, f.index.Derive(f.planner.Decide(object, model.Families)))
	}
}

func (f *fixture) synced() { f.index.OnSynced(selection.SyncState{Scope: scope}) }

var scope = selection.Scope{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}

// apply gives Services a ClusterIP, a node port, and endpoints: "NODE ADDR", with ! if it is not serving.
func (f *fixture) apply(name, clusterIP string, edit func(*model.Service), endpoints ...string) {
	object := model.ObjectName{Namespace: "default", Name: name}
	service := &model.Service{
		Name: object, ClusterIPs: []netip.Addr{netip.MustParseAddr(clusterIP)},
		Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}
	if edit != nil {
		edit(service)
	}
	slice := &model.EndpointSlice{
		Name: object, Service: object, Family: model.IPv4,
		Ports: []model.SlicePort{{Name: "http", Protocol: service.Ports[0].Protocol, Port: 8080}},
	}
	for _, endpoint := range endpoints {
		var node, addr string
		if _, err := fmt.Sscan(endpoint, &node, &addr); err != nil {
			f.t.Fatal(err)
		}
		addr, isNotServing := strings.CutSuffix(addr, "!")
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: netip.MustParseAddr(addr), Endpoint: model.Endpoint{Node: node, Zone: "zone-of-" + node, Ready: !isNotServing,
				Serving: !isNotServing},
		})
	}
	f.cluster.Apply(model.Change{
		Services: map[model.ObjectName]*model.Service{object: service},
		Slices:   map[model.ObjectName]*model.EndpointSlice{object: slice},
	})
}

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func isNeverLocal(netip.Addr) (bool, error) { return false, nil }

// allows queries the current snapshot.
func (f *fixture) allows(origDst, endpoint, client string) bool {
	f.t.Helper()
	frontend := f.index.Snapshot().Lookup(model.TCP, addrPort(origDst))
	if frontend == nil {
		return false
	}
	isAllowed, err := frontend.Allows(addrPort(endpoint), netip.MustParseAddr(client), scope, isNeverLocal)
	if err != nil {
		f.t.Fatal(err)
	}
	return isAllowed
}

func (f *fixture) isRemoved(endpoint string) bool {
	return f.index.Removed(Endpoint{model.TCP, addrPort(endpoint)})
}

const pod, host = "10.244.9.9", "192.0.2.9"

func TestWhichServiceOwnsAFrontendAndWhichEndpointsMayServeIt(t *testing.T) {
	fx := newFixture(t)
	if fx.index.Snapshot() != nil {
		t.Error("there is a snapshot before the first sync")
	}
	fx.apply("web", "10.96.0.1", func(s *model.Service) { s.ExternalTrafficLocal = true }, "node-a 10.244.0.1", "node-b 10.244.1.1")
	fx.accept("web")
	fx.synced()
	for _, test := range []struct {
		origDst, endpoint, client string
		want                      bool
	}{
		{"10.96.0.1:80", "10.244.0.1:8080", host, true},
		{"10.96.0.1:80", "10.244.1.1:8080", host, true},
		{"10.96.0.1:80", "10.244.1.1:8081", host, false},
		{"10.96.0.1:81", "10.244.1.1:8080", host, false},
		{"192.0.2.1:30080", "10.244.0.1:8080", host, true},
		{"192.0.2.1:30080", "10.244.1.1:8080", host, false},
		{"192.0.2.1:30080", "10.244.1.1:8080", pod, true},
	} {
		if got := fx.allows(test.origDst, test.endpoint, test.client); got != test.want {
			t.Errorf("%+v: got %t", test, got)
		}
	}
	owner := fx.index.Snapshot().Lookup(model.TCP, addrPort("10.96.0.1:80"))
	if owner.Service.Name != "web" || owner.Name != "http" || owner.Kind != model.ClusterIP {
		t.Errorf("the frontend belongs to %s, port %s, kind %s", owner.Service, owner.Name, owner.Kind)
	}
	if node, known := owner.NodeOf(addrPort("10.244.1.1:8080")); !known || node != "node-b" {
		t.Errorf("the endpoint is on %q, %t; want node-b", node, known)
	}
	failing := func(netip.Addr) (bool, error) { return false, errors.New("no response") }
	nodePort := fx.index.Snapshot().Lookup(model.TCP, addrPort("192.0.2.1:30080"))
	if isAllowed, err := nodePort.Allows(addrPort("10.244.1.1:8080"), netip.MustParseAddr(host), scope, failing); !isAllowed || err == nil {
		t.Errorf("a kernel that does not respond: %t, %v; want true and an error", isAllowed, err)
	}
}

func TestWhichEndpointsWereRemoved(t *testing.T) {
	const onA, onB = "10.244.0.1:8080", "10.244.1.1:8080"
	internalLocal := func(s *model.Service) { s.InternalTrafficLocal = true }
	for name, test := range map[string]struct {
		change func(fx *fixture)
		left   []string
	}{
		"nothing changes": {func(fx *fixture) { fx.accept("web") }, nil},
		"another one is added": {func(fx *fixture) {
			fx.apply("web", "10.96.0.1", nil, "node-a 10.244.0.1", "node-b 10.244.1.1", "node-b 10.244.1.3")
		}, nil},
		"one is removed":  {func(fx *fixture) { fx.apply("web", "10.96.0.1", nil, "node-a 10.244.0.1") }, []string{onB}},
		"all are removed": {func(fx *fixture) { fx.apply("web", "10.96.0.1", nil) }, []string{onA, onB}},
		"internalTrafficPolicy Local": {func(fx *fixture) {
			fx.apply("web", "10.96.0.1", internalLocal, "node-a 10.244.0.1", "node-b 10.244.1.1")
		}, []string{onB}},
		"the Service changes its IP": {func(fx *fixture) {
			fx.apply("web", "10.96.0.3", nil, "node-a 10.244.0.1", "node-b 10.244.1.1")
		}, []string{onA, onB}},
		"the Service is deleted": {func(fx *fixture) {
			fx.cluster.Apply(model.Change{Services: map[model.ObjectName]*model.Service{{Namespace: "default", Name: "web"}: nil}})
		}, []string{onA, onB}},
		"a frontend is lost": {func(fx *fixture) {
			lost := model.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: model.TCP, Port: 80}
			fx.index.OnFrontendsLost(model.ObjectName{Namespace: "default", Name: "web"}, []model.Frontend{lost})
		}, []string{onA, onB}},
		"after an error it is unknown whether one was applied": {func(fx *fixture) {
			fx.apply("web", "10.96.0.1", nil, "node-a 10.244.0.1", "node-b 10.244.1.1", "node-b 10.244.1.3")
			object := model.ObjectName{Namespace: "default", Name: "web"}
			fx.index.OnMaybeApplied(object, fx.index.Derive(fx.planner.Decide(object, model.Families)))
			fx.apply("web", "10.96.0.1", nil, "node-a 10.244.0.1", "node-b 10.244.1.1")
		}, []string{onA, onB, "10.244.1.3:8080"}},
	} {
		t.Run(name, func(t *testing.T) {
			fx := newFixture(t)
			fx.apply("web", "10.96.0.1", nil, "node-a 10.244.0.1", "node-b 10.244.1.1")
			fx.accept("web")
			fx.synced()
			<-fx.index.Changed() // earlier removals are unknown
			test.change(fx)
			if name != "a frontend is lost" {
				fx.accept("web")
			}
			fx.synced()
			var removed []string
			fx.index.RangeRemoved(time.Time{}, func(e Endpoint) bool { removed = append(removed, e.Addr.String()); return true })
			slices.Sort(removed)
			if !slices.Equal(removed, test.left) {
				t.Errorf("removed are %v, want %v", removed, test.left)
			}
			if isSignalled := len(fx.index.Changed()) > 0; isSignalled != (len(test.left) > 0) {
				t.Errorf("signalled: %t", isSignalled)
			}
		})
	}
}

// The order in which the two changes are applied does not matter.
func TestAMovedFrontendBelongsToItsNewOwner(t *testing.T) {
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		fx := newFixture(t)
		noNodePort := func(s *model.Service) { s.Ports[0].NodePort = 0 }
		fx.apply("a", "10.96.0.1", noNodePort, "node-a 10.244.0.1")
		fx.accept("a")
		fx.synced()
		fx.apply("a", "10.96.0.2", noNodePort, "node-a 10.244.0.1")
		fx.apply("b", "10.96.0.1", noNodePort, "node-a 10.244.0.2")
		old := fx.index.Snapshot()
		fx.accept(order...)
		if fx.index.Snapshot() != old {
			t.Error("the snapshot changed before the end of the sync")
		}
		fx.synced()
		if owner := fx.index.Snapshot().Lookup(model.TCP, addrPort("10.96.0.1:80")); owner == nil || owner.Service.Name != "b" {
			t.Errorf("in the order %v the frontend belongs to %+v, want b", order, owner)
		}
		if owner := old.Lookup(model.TCP, addrPort("10.96.0.1:80")); owner.Service.Name != "a" ||
			old.Lookup(model.TCP, addrPort("10.96.0.2:80")) != nil {
			t.Errorf("the old snapshot has changed: %s", owner.Service)
		}
		if owner := fx.index.Snapshot().Lookup(model.TCP, addrPort("10.96.0.2:80")); owner == nil || owner.Service.Name != "a" {
			t.Errorf("in the order %v the other frontend belongs to %+v, want a", order, owner)
		}
	}
}

func TestRemovedEndpointsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fx := newFixture(t)
		fx.apply("web", "10.96.0.1", nil, "node-a 10.244.0.1", "node-b 10.244.1.1")
		fx.accept("web")
		fx.synced()
		replaceEndpoints := func(endpoints ...string) {
			fx.apply("web", "10.96.0.1", nil, endpoints...)
			fx.accept("web")
			fx.synced()
		}
		replaceEndpoints("node-a 10.244.0.1")
		time.Sleep(40 * time.Second)
		replaceEndpoints("node-a 10.244.0.1", "node-b 10.244.1.1")
		replaceEndpoints("node-a 10.244.0.1") // it was removed again
		time.Sleep(40 * time.Second)
		fx.synced()
		if !fx.isRemoved("10.244.1.1:8080") {
			t.Error("an endpoint that was removed 40 s ago has expired, because it had been removed before")
		}
		time.Sleep(40 * time.Second)
		fx.synced()
		if fx.isRemoved("10.244.1.1:8080") || len(fx.index.removed.order) != 0 {
			t.Errorf("an endpoint that was removed 80 s ago is reported, or kept: %v", fx.index.removed.order)
		}
	})
}

// The cache must not grow without limit.
func TestTooManyRemovalsAreUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fx := newFixture(t)
		fx.synced()
		first := fx.index.Snapshot().RemovalsRecordedSince
		time.Sleep(time.Second)
		for i := range maxEntries + 10 {
			addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			fx.index.removing[Endpoint{model.TCP, netip.AddrPortFrom(addr, 80)}] = true
		}
		fx.synced()
		if since := fx.index.Snapshot().RemovalsRecordedSince; !since.After(first) {
			t.Errorf("RemovedKnownSince is %s, want now", since)
		}
		fx.synced()
		if n := len(fx.index.removed.order); n != maxEntries {
			t.Errorf("%d entries are kept, want %d", n, maxEntries)
		}
	})
}

// TestMemory checks the memory bound of pkg/README.md for 10,000 Services of ten endpoints. It measures a tenth of
// them.
func TestMemory(t *testing.T) {
	fx := newFixture(t)
	addServices(fx, 1000)
	before := heap()
	fx.acceptLarge(1000)
	used := 10 * (heap() - before)
	runtime.KeepAlive(fx)
	if t.Logf("%.1f MiB", float64(used)/(1<<20)); used > 16<<20 {
		t.Errorf("%d bytes, want at most 16 MiB", used)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func addServices(fx *fixture, services int) {
	for i := range services {
		var endpoints []string
		for k := range 10 {
			endpoints = append(endpoints, fmt.Sprintf("node-b 10.%d.%d.%d", 100+k, i>>8, i&255))
		}
		fx.apply(fmt.Sprint("s", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&255), func(s *model.Service) { s.Ports[0].NodePort = 0 }, endpoints...)
	}
}

func (f *fixture) acceptLarge(services int) {
	for i := range services {
		f.accept(fmt.Sprint("s", i))
	}
	f.synced()
}

// BenchmarkOneChange measures the cost of a sync with one change among many Services.
func BenchmarkOneChange(b *testing.B) {
	fx := newFixture(b)
	addServices(fx, 10_000)
	fx.acceptLarge(10_000)
	object := model.ObjectName{Namespace: "default", Name: "s7"}
	decisions := fx.planner.Decide(object, model.Families)
	for b.Loop() {
		fx.index.OnApplied(object, fx.index.Derive(decisions))
		fx.synced()
	}
}
