package syncer_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// headlessOf returns a headless Service of a tenant with many ports, and with many endpoints in both families.
func headlessOf(name string, ports, endpoints int) model.Change {
	object := model.ObjectName{Namespace: "tenant", Name: name}
	service := &model.Service{
		Name: object, IsHeadless: true, Topology: policy.Topology{Keys: []policy.Key{policy.AnyNode}}, Created: time.Unix(1, 0),
	}
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{object: service}, Slices: map[model.ObjectName]*model.EndpointSlice{},
	}
	for i := range ports {
		port := model.ServicePort{Name: fmt.Sprint("p-", i), Protocol: model.TCP, Port: uint16(i + 1)}
		service.Ports = append(service.Ports, port)
	}
	if endpoints == 0 {
		return change
	}
	for i, first := range []string{"10.64.0.1", "fd64::1"} {
		slice := &model.EndpointSlice{
			Name: model.ObjectName{Namespace: "tenant", Name: name + "-" + fmt.Sprint(i)}, Service: object, Family: model.Families[i],
		}
		for _, port := range service.Ports {
			slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: model.TCP, Port: port.Port})
		}
		addr := netip.MustParseAddr(first)
		for range endpoints {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: addr, Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true},
			})
			addr = addr.Next()
		}
		change.Slices[slice.Name] = slice
	}
	return change
}

// targetCounter is a handler that counts the targets of headless Services: those of the last sync, and all of them, by
// Service.
type targetCounter struct {
	lastSync, services int
	all                map[model.ObjectName]int
}

func (*targetCounter) Derive(decisions []selection.Decision) any {
	targets := 0
	for _, decision := range decisions {
		if decision.Service.IsHeadless {
			targets += len(decision.Selection.Cluster.Endpoints)
		}
	}
	return targets
}

func (*targetCounter) OnSynced(selection.SyncState) {}

func (c *targetCounter) OnApplied(service model.ObjectName, derived any) {
	delete(c.all, service)
	if targets, _ := derived.(int); targets > 0 {
		c.all[service], c.lastSync, c.services = targets, c.lastSync+targets, c.services+1
	}
}

// targetsPerSync syncs until nothing waits, and returns the targets of each sync.
func (c *targetCounter) targetsPerSync(t *testing.T, p *syncer.Proxy) (targets []int) {
	t.Helper()
	for len(targets) == 0 || p.Waits() {
		if len(targets) > 1000 {
			t.Fatal("Services still wait after 1000 syncs")
		}
		c.lastSync, c.services = 0, 0
		p.AllowLarge()
		mustSync(t, p)
		targets = append(targets, c.lastSync)
	}
	return targets
}

// newTargetCounter returns a proxy that has synced a few other Services, and its handler.
func newTargetCounter(t *testing.T) (*targetCounter, *memoryKernel, *syncer.Proxy) {
	t.Helper()
	counter, kernel := &targetCounter{all: map[model.ObjectName]int{}}, &memoryKernel{}
	p := newProxy(kernel, counter)
	p.Apply(manyServices(3, 2))
	mustSync(t, p)
	return counter, kernel, p
}

// TestALargeHeadlessServiceWaitsForItsBatch: one large Service is decided per sync, together with small ones, and never
// two in a row without a pause. Earlier decisions stay applied until then.
func TestALargeHeadlessServiceWaitsForItsBatch(t *testing.T) {
	for title, size := range map[string][2]int{
		"many ports": {syncer.MaxBatchWeight, 4}, "many endpoints": {1, 2 * syncer.MaxBatchWeight},
		"ports without endpoints": {syncer.MaxBatchWeight, 0},
	} {
		t.Run(title, func(t *testing.T) {
			counter, kernel, p := newTargetCounter(t)
			p.Apply(headlessOf("a", 1, 3))
			mustSync(t, p)
			before := map[model.ObjectName]int{{Namespace: "tenant", Name: "a"}: 12}
			if diff := cmp.Diff(before, counter.all); diff != "" {
				t.Fatalf("targets (-want +got):\n%s", diff)
			}
			for _, name := range []string{"a", "b", "c"} {
				p.Apply(headlessOf(name, size[0], size[1]))
			}
			p.ForbidLarge()
			p.Apply(resized(7))
			report := mustSync(t, p)
			if diff := cmp.Diff(before, counter.all); diff != "" || report.Decided != 1 || kernel.slotsFor(t, "10.96.0.0") != 7 {
				t.Errorf("while large ones wait: %+v, targets (-want +got):\n%s", report, diff)
			}
			if !p.Waits() {
				t.Error("nothing waits")
			}
			if syncs := counter.targetsPerSync(t, p); len(syncs) < 3 {
				t.Errorf("three large ones were decided in %d syncs with %d targets, want at least three syncs", len(syncs), syncs)
			}
		})
	}
}

// TestManyHeadlessServicesThatChangeTogetherAreBatched: none of them is in the kernel, but each is still work. A change
// in another namespace is in the first sync.
func TestManyHeadlessServicesThatChangeTogetherAreBatched(t *testing.T) {
	const count, ports, endpoints = 100, 4, 50
	counter, kernel, p := newTargetCounter(t)
	for i := range count {
		p.Apply(headlessOf(fmt.Sprint("s-", i), ports, endpoints))
	}
	p.Apply(resized(5))
	counter.lastSync = 0
	p.ForbidLarge()
	mustSync(t, p)
	if got := kernel.slotsFor(t, "10.96.0.0"); got != 5 || counter.lastSync > syncer.MaxBatchWeight {
		t.Errorf("after the first sync the other Service has %d endpoints, want 5; it decided about %d targets", got, counter.lastSync)
	}
	all := counter.targetsPerSync(t, p)
	const each = 2 * endpoints * (ports + 1)
	if largest := slices.Max(all); largest > syncer.MaxBatchWeight || len(all) < count*each/syncer.MaxBatchWeight {
		t.Errorf("syncs decided about %d targets, want several of at most %d", all, syncer.MaxBatchWeight)
	}
	if len(counter.all) != count {
		t.Errorf("%d Services were passed to the handler, want %d", len(counter.all), count)
	}
}
