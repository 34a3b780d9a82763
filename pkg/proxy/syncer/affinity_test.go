package syncer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestServicesWithoutANumberAreReported checks that Services for which no number is left are reported, and are balanced
// as if they had no affinity.
func TestServicesWithoutANumberAreReported(t *testing.T) {
	taken := map[string][]ruleset.Element{}
	for i := range uint32(1 << 16) { // all numbers of ports with few endpoints
		taken[ruleset.StickyPorts.Name] = append(taken[ruleset.StickyPorts.Name], ruleset.Element{
			Key: ruleset.Tuple{Number: i}, Value: ruleset.Tuple{Number: 0xf0000000 | i<<8},
		})
	}
	kernel := &scriptedKernel{}
	kernel.numbers = map[model.Family]map[string][]ruleset.Element{model.IPv4: taken}
	p := newProxy(kernel)
	const services = 120
	everything := manyServices(services, 2)
	for _, service := range everything.Services {
		service.AffinityTimeout = affinityTimeout
	}
	p.Apply(everything)
	first := model.ObjectName{Namespace: "default", Name: "service-0"}
	if report := mustSync(t, p); len(report.WithoutAffinity) != services || !report.WithoutAffinity[first] {
		t.Errorf("%d Services are reported, want %d", len(report.WithoutAffinity), services)
	}
	plain := manyServices(services, 2)
	checkLikeFreshStart(t, &kernel.memoryKernel, plain)

	// Now the numbers are free again, and a change of the Service is enough to get one.
	p.Apply(resized(1))
	want := map[model.ObjectName]bool{first: false}
	if report := mustSync(t, p); !maps.Equal(report.WithoutAffinity, want) || report.Full {
		t.Errorf("after a change of one Service the report is %+v, want that service-0 has a number", report)
	}
	for _, b := range balancingIn(t, &kernel.memoryKernel, model.IPv4)[:1] {
		sticky := 0
		for _, frontend := range b.frontends {
			if frontend.affinityEndpoints != nil {
				sticky++
			}
		}
		if sticky != 1 {
			t.Errorf("%d frontends have session affinity, want only that one", sticky)
		}
	}
}

// TestAProxyThatStartsReadsNoMapOfClients, nor anything else whose size depends on the number of clients.
func TestAProxyThatStartsReadsNoMapOfClients(t *testing.T) {
	kernel := &scriptedKernel{}
	p := newProxy(kernel)
	p.Apply(stickyService(1, 2, 3))
	mustSync(t, p)
	objects, err := kernel.Objects(t.Context(), model.IPv4) // as a proxy does at its start
	if err != nil {
		t.Fatal(err)
	}
	growsWithClients := func(name string) bool { return strings.HasPrefix(name, "affinity-") || name == ruleset.Numbered.Name }
	if !slices.ContainsFunc(objects.Sets, growsWithClients) || len(objects.Contents) == 0 {
		t.Errorf("sets %v, with the contents of %d of them: nothing is tested", objects.Sets, len(objects.Contents))
	}
	for name := range objects.Contents {
		if growsWithClients(name) {
			t.Errorf("the contents of %s are read", name)
		}
	}
}
