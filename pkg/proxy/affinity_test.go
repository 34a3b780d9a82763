package proxy_test

import (
	"maps"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestServicesWithoutANumberAreReported, and are balanced as if they had no affinity.
func TestServicesWithoutANumberAreReported(t *testing.T) {
	taken := map[string][]ruleset.Element{}
	for i := range uint32(1 << 16) { // all the numbers there are for ports with few endpoints
		taken[ruleset.StickyPorts.Name] = append(taken[ruleset.StickyPorts.Name], ruleset.Element{
			Key: ruleset.Tuple{Number: i}, Value: ruleset.Tuple{Number: 0xf0000000 | i<<8},
		})
	}
	kernel := &scriptedKernel{}
	kernel.numbers = map[model.Family]map[string][]ruleset.Element{model.IPv4: taken}
	p := starting(kernel)
	const services = 120
	everything := manyServices(services, 2)
	for _, service := range everything.Services {
		service.AffinityTimeout = affinityTimeout
	}
	p.Apply(everything)
	first := model.ObjectName{Namespace: "default", Name: "service-0"}
	if report := mustSync(t, p); len(report.Unremembered) != services || !report.Unremembered[first] {
		t.Errorf("%d Services are reported, want %d", len(report.Unremembered), services)
	}
	plain := manyServices(services, 2)
	likeFreshStart(t, &kernel.memoryKernel, plain)

	// Now the numbers are free again, and a change of the Service is enough to get one.
	p.Apply(resized(1))
	over := map[model.ObjectName]bool{first: false}
	if report := mustSync(t, p); !maps.Equal(report.Unremembered, over) || report.Complete {
		t.Errorf("a change of one Service reports %+v, want it with a number", report)
	}
	for _, maps := range balancingIn(t, &kernel.memoryKernel, model.IPv4)[:1] {
		sticky := 0
		for _, frontend := range maps.frontends {
			if frontend.remembered != nil {
				sticky++
			}
		}
		if sticky != 1 {
			t.Errorf("%d frontends remember their clients, want that one alone", sticky)
		}
	}
}
