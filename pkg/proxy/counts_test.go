package proxy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// manyEndpoints are more endpoints than the tables have a class for anyway, so they bring a class of their own, and
// leave it to the sweep.
const manyEndpoints = 33

// manyServices returns a cluster of Services with the given number of ready endpoints each.
func manyServices(services, endpoints int) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for number := range services {
		name := model.ObjectName{Namespace: "default", Name: fmt.Sprintf("service-%d", number)}
		change.Services[name] = &model.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})},
			Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}
		change.Slices[name] = sliceOf(name, endpoints)
	}
	return change
}

// sliceOf returns the slice of a Service made by manyServices, with endpoints 0 to count-1 of those it may have.
func sliceOf(name model.ObjectName, count int) *model.EndpointSlice {
	slice := &model.EndpointSlice{Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	var number int
	if _, err := fmt.Sscanf(name.Name, "service-%d", &number); err != nil {
		panic(err)
	}
	for endpoint := range count {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr:     netip.AddrFrom4([4]byte{10, byte(128 + endpoint), byte(number >> 8), byte(number)}),
			Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true},
		})
	}
	return slice
}

// TestAChangeWritesOnlyTheElementsThatChanged, however many Services there are.
func TestAChangeWritesOnlyTheElementsThatChanged(t *testing.T) {
	name := model.ObjectName{Namespace: "default", Name: "service-7"}
	slice := func(slice *model.EndpointSlice) model.Change {
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{name: slice}}
	}
	replaced := sliceOf(name, 10)
	replaced.Endpoints[4].Addr = netip.MustParseAddr("10.250.0.1")
	steps := []countedStep{
		{"another pod takes an endpoint's place: its slot", slice(replaced), 1, 1},
		{"the slice comes again unchanged: nothing", slice(replaced), 0, 0},
		{"the first pod comes back: its slot", slice(sliceOf(name, 10)), 1, 1},
		{"the last endpoint leaves: its slot and the class", slice(sliceOf(name, 9)), 1, 2},
		{"it comes back: its slot and the class", slice(sliceOf(name, 10)), 2, 1},
		{"all endpoints leave: ten slots and the class", slice(sliceOf(name, 0)), 1, 11},
		{"more come than before: their slots, the class, the first dispatch entry for so many",
			slice(sliceOf(name, manyEndpoints)), manyEndpoints + 2, 1},
		{"ten are left: slots, the class, the dispatch entry that no frontend needs now",
			slice(sliceOf(name, 10)), 1, manyEndpoints - 10 + 2},
		{"a node appears that no Service asks for: nothing", model.Change{
			Nodes: map[string]*model.Node{"elsewhere": {Name: "elsewhere", Labels: map[string]string{string(policy.Zone): "a"}}},
		}, 0, 0},
		{"the Service goes: ten slots, its frontend and its ClusterIP", model.Change{
			Services: map[model.ObjectName]*model.Service{name: nil},
		}, 0, 12},
	}
	checkCounts(t, steps)
}

// countedStep is a change, and how many elements it writes.
type countedStep struct {
	title          string
	change         model.Change
	added, deleted int
}

// checkCounts takes the steps among few Services and among many, all of them those of manyServices.
func checkCounts(t *testing.T, steps []countedStep) {
	t.Helper()
	for _, services := range []int{20, 2000} {
		p := starting(&memoryKernel{})
		p.Apply(manyServices(services, 10))
		mustSync(t, p)
		for _, step := range steps {
			p.Apply(step.change)
			report := mustSync(t, p)
			if added, deleted := report.Added[model.IPv4], report.Deleted[model.IPv4]; added != step.added || deleted != step.deleted {
				t.Errorf("%s (of %d Services): wrote %d and deleted %d elements, want %d and %d",
					step.title, services, added, deleted, step.added, step.deleted)
			}
			if report.Complete || report.Services > 1 || report.Added[model.IPv6]+report.Deleted[model.IPv6] > 0 {
				t.Errorf("%s: touched more than it had to: %+v", step.title, report)
			}
		}
	}
}

// TestTheFirstSyncWritesEachElementOnce counts what a first sync sends.
func TestTheFirstSyncWritesEachElementOnce(t *testing.T) {
	p := starting(&memoryKernel{})
	p.Apply(manyServices(300, 10))
	report := mustSync(t, p)
	// For each Service ten slots, a frontend and a ClusterIP; the dispatch entries that every table has.
	if want := 300*(10+1+1) + 34; report.Added[model.IPv4] != want || report.Deleted[model.IPv4] != 0 {
		t.Errorf("wrote %d and deleted %d elements, want %d and none", report.Added[model.IPv4], report.Deleted[model.IPv4], want)
	}
}
