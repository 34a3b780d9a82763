package syncer_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// largeService returns a Service of a tenant with many endpoints.
func largeService(name string, clusterIP netip.Addr, endpoints int) model.Change {
	object := model.ObjectName{Namespace: "tenant", Name: name}
	slice := &model.EndpointSlice{Name: object, Service: object, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	addr := netip.MustParseAddr("10.64.0.1")
	for range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: addr, Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true},
		})
		addr = addr.Next()
	}
	service := &model.Service{
		Name: object, ClusterIPs: []netip.Addr{clusterIP}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, Created: time.Unix(1, 0),
	}
	return model.Change{
		Services: map[model.ObjectName]*model.Service{object: service}, Slices: map[model.ObjectName]*model.EndpointSlice{object: slice},
	}
}

// largestBatch returns the number of elements in the largest transaction so far, and forgets all transactions.
func (k *memoryKernel) largestBatch() int {
	largest := 0
	for _, batch := range k.batches {
		elements := 0
		for _, family := range model.Families {
			elements += batch.Count(family, ruleset.Add) + batch.Count(family, ruleset.Delete)
		}
		largest = max(largest, elements)
	}
	k.batches = nil
	return largest
}

// slotsFor returns the number of slots over which connections to an address are balanced.
func (k *memoryKernel) slotsFor(t *testing.T, addr string) int {
	t.Helper()
	elements, err := k.Elements(model.IPv4, ruleset.Services)
	if err != nil {
		t.Fatal(err)
	}
	for _, element := range elements {
		if element.Key.Addr == netip.MustParseAddr(addr) {
			return int(element.Value.Number &^ uint32(ruleset.BalanceClass(0)))
		}
	}
	return 0
}

// syncAllBatches syncs until nothing waits, and returns the number of syncs.
func syncAllBatches(t *testing.T, p *syncer.Proxy) int {
	t.Helper()
	for syncs := 1; ; syncs++ {
		mustSync(t, p)
		if !p.Waits() {
			return syncs
		}
		if syncs > 1000 {
			t.Fatal("Services still wait after 1000 syncs")
		}
		p.AllowLarge()
	}
}

// TestALargeServiceIsWrittenInSteps: the Service is added, changed and deleted in transactions of a bounded size, and a
// small change that arrives in between is in the next one.
func TestALargeServiceIsWrittenInSteps(t *testing.T) {
	const size = 3*syncer.MaxBatchWeight + 100
	kernel := &memoryKernel{}
	p := newProxy(kernel)
	everything := manyServices(3, 2)
	p.Apply(everything)
	mustSync(t, p)
	kernel.batches = nil
	apply := func(change model.Change) {
		everything = everything.Merge(change)
		p.Apply(change)
	}
	ip := netip.MustParseAddr("10.96.200.1")
	replaced := largeService("large", ip, size)
	for _, slice := range replaced.Slices {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addr = netip.AddrFrom4([4]byte{10, 80, byte(i >> 8), byte(i)})
		}
	}
	name := model.ObjectName{Namespace: "tenant", Name: "large"}
	deletion := model.Change{
		Services: map[model.ObjectName]*model.Service{name: nil}, Slices: map[model.ObjectName]*model.EndpointSlice{name: nil},
	}
	for i, change := range []model.Change{largeService("large", ip, size), replaced, deletion} {
		apply(change)
		p.AllowLarge()
		mustSync(t, p)
		if !p.Waits() {
			t.Errorf("step %d: nothing waits after the first sync of %d endpoints", i, size)
		}
		apply(resized(3 + i))
		report := mustSync(t, p) // before the next step of the large one
		if report.Decided != 1 || kernel.slotsFor(t, "10.96.0.0") != 3+i {
			t.Errorf("step %d: the small change is not in the next sync: %+v", i, report)
		}
		if syncs := syncAllBatches(t, p); syncs < 2 {
			t.Errorf("step %d: everything is done after %d more syncs, want at least 2", i, syncs)
		}
		if largest := kernel.largestBatch(); largest > 2*syncer.MaxBatchWeight+1000 {
			t.Errorf("step %d: a transaction has %d elements", i, largest)
		}
		checkLikeFreshStart(t, kernel, everything)
	}
}

// TestAFrontendThatMovesFromALargeServiceHasOneOwner while the large one waits, and when a Service that was rejected
// gets the frontend.
func TestAFrontendThatMovesFromALargeServiceHasOneOwner(t *testing.T) {
	ip := netip.MustParseAddr("10.96.200.1")
	large, small := model.ObjectName{Namespace: "tenant", Name: "large"}, model.ObjectName{Namespace: "tenant", Name: "small"}
	for title, rejects := range map[string]bool{"at once": false, "after it was rejected": true} {
		t.Run(title, func(t *testing.T) {
			kernel, handler := &rejectingKernel{rejected: map[tableItem]bool{}}, newHandlerModel(t)
			p := newProxy(kernel, handler)
			p.Apply(largeService("large", ip, 3*syncer.MaxBatchWeight))
			mustSync(t, p)
			frontend := model.Frontend{Addr: ip, Protocol: model.TCP, Port: 80}
			if rejects {
				p.Apply(largeService("small", netip.MustParseAddr("10.96.200.9"), 3))
				kernel.rejected[tableItem{
					model.IPv4, ruleset.Services.Name, ruleset.Tuple{Addr: netip.MustParseAddr("10.96.200.9"), Proto: model.TCP, Port: 80},
				}] = true
				if report := mustSync(t, p); report.RejectedTotal != 1 {
					t.Fatalf("report %+v, want one Service rejected", report)
				}
				clear(kernel.rejected)
			}
			p.Apply(model.Change{Services: map[model.ObjectName]*model.Service{large: nil}})
			p.Apply(largeService("small", ip, 3))
			p.ForbidLarge()
			mustSync(t, p)
			if got := kernel.slotsFor(t, ip.String()); handler.byFrontend[frontend] != small || got != 3 || !p.Waits() {
				t.Errorf("%s belongs to %v, with %d endpoints; want %s with 3, while the other one waits", ip, handler.byFrontend[frontend], got, small)
			}
			handler.checkOwners(&kernel.memoryKernel, true)
		})
	}
}

// TestManyServicesThatChangeTogetherLeaveRoomForOthers: a change in another namespace is in the first sync.
func TestManyServicesThatChangeTogetherLeaveRoomForOthers(t *testing.T) {
	kernel := &memoryKernel{}
	p := newProxy(kernel)
	everything := manyServices(3, 2)
	p.Apply(everything)
	mustSync(t, p)
	kernel.batches = nil
	for i := range 400 {
		change := largeService(fmt.Sprint("s-", i), netip.AddrFrom4([4]byte{10, 96, 100 + byte(i>>8), byte(i)}), 100)
		everything = everything.Merge(change)
		p.Apply(change)
	}
	p.Apply(resized(5))
	everything = everything.Merge(resized(5))
	mustSync(t, p)
	if got := kernel.slotsFor(t, "10.96.0.0"); got != 5 {
		t.Errorf("after the first sync the other Service has %d endpoints, want 5", got)
	}
	if syncs := syncAllBatches(t, p); syncs < 4 {
		t.Errorf("400 Services of 100 endpoints took %d more syncs, want at least 4", syncs)
	}
	checkLikeFreshStart(t, kernel, everything)
}
