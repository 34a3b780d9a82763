package proxy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Each case starts with the endpoints 1, 2 and 3, and 3 leaves.
func TestClientsOfAnEndpointThatLeavesComeToAnother(t *testing.T) {
	type kernelOf = func(t *testing.T, k *scriptedKernel)
	for name, test := range map[string]struct {
		prepare kernelOf
		restart bool // a new proxy, with the kernel as it is
		want    []string
	}{
		"those who were remembered before": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, 1, 1)
				k.remember(t, 2, 3)
				k.remember(t, 3, 2)
				k.remember(t, 4, 3)
			},
			want: []string{"1:1", "3:2"},
		},
		"one who drew it before the commit, and is remembered after it": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, 1, 1)
				done := false
				k.committed = func(ruleset.Batch) {
					if !done {
						done = true
						k.remember(t, 5, 3)
						k.remember(t, 6, 2)
					}
				}
			},
			want: []string{"1:1", "6:2"},
		},
		"those whom a proxy finds that starts": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, 1, 1)
				k.remember(t, 2, 3)
			},
			restart: true,
			want:    []string{"1:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := starting(kernel)
			p.Apply(stickyService(1, 2, 3))
			mustSync(t, p)
			test.prepare(t, kernel)
			if test.restart {
				p = starting(kernel)
			}
			p.Apply(stickyService(1, 2))
			if report := mustSync(t, p); report.Complete != test.restart {
				t.Errorf("the sync was complete: %v, want %v", report.Complete, test.restart)
			}
			if diff := cmp.Diff(test.want, kernel.remembered(t)); diff != "" {
				t.Errorf("clients and their endpoints (-want +got):\n%s", diff)
			}
			likeFreshStart(t, &kernel.memoryKernel, stickyService(1, 2))
		})
	}
}

// TestClientsKeepTheirEndpoint through all changes that are not about it, and the endpoint keeps them.
func TestClientsKeepTheirEndpoint(t *testing.T) {
	kernel := &scriptedKernel{}
	p := starting(kernel)
	everything := manyServices(3, 2).Then(stickyService(1, 2))
	p.Apply(everything)
	mustSync(t, p)
	kernel.remember(t, 1, 1)
	kernel.remember(t, 2, 2)
	for _, step := range []struct {
		title string
		do    func()
	}{
		{"others come", func() { p.Apply(stickyService(1, 2, 3, 4, 5, 6, 7, 8)) }},
		{"others leave", func() { p.Apply(stickyService(1, 2, 5)) }},
		{"another Service changes", func() { p.Apply(resized(1)) }},
		{"the tables are distrusted", func() { p.Distrust() }},
		{"a commit fails", func() {
			kernel.refuse = refuseAll
			p.Apply(stickyService(1, 2, 7))
			if _, err := p.Sync(t.Context()); err == nil {
				t.Error("the commit did not fail")
			}
			kernel.refuse = nil
		}},
		{"the proxy starts again", func() { p = starting(kernel); p.Apply(everything) }},
		{"a Service comes that is before it", func() {
			before := nameService("aaa", "10.96.2.1", func(service *model.Service) { service.AffinityTimeout = affinityTimeout })
			p.Apply(oneService(before, answeredBy("aaa", 1, 2)))
		}},
		{"the proxy starts again with that", func() { p.Distrust() }},
	} {
		step.do()
		mustSync(t, p)
		if diff := cmp.Diff([]string{"1:1", "2:2"}, kernel.remembered(t)); diff != "" {
			t.Errorf("%s: clients and their endpoints (-want +got):\n%s", step.title, diff)
		}
	}
}

// TestAnEndpointThatLeavesCostsTheSameWhateverItsClients: one deletion of its number. The kernel's time to list a map
// of clients would grow with the square of their number, and a change of any Service would have to wait for it.
func TestAnEndpointThatLeavesCostsTheSameWhateverItsClients(t *testing.T) {
	written := map[string][]int{}
	for _, clients := range []int{0, 1, 5000} {
		kernel := &scriptedKernel{}
		p := starting(kernel)
		p.Apply(manyServices(3, 2).Then(stickyService(1, 2, 3)))
		mustSync(t, p)
		for client := range clients {
			kernel.remember(t, client, 1+client%3)
		}
		for _, step := range []struct {
			title   string
			do      func()
			deleted int // numbers
		}{
			{"one leaves", func() { p.Apply(stickyService(1, 2)) }, 1},
			{"one is replaced", func() { p.Apply(stickyService(1, 4)) }, 1},
			{"one comes", func() { p.Apply(stickyService(1, 4, 5)) }, 0},
			{"all but one leave", func() { p.Apply(stickyService(1)) }, 2},
			{"nothing changes", func() { p.Apply(stickyService(1)) }, 0},
			{"the tables are distrusted", func() { p.Distrust() }, 0},
			{"the last one leaves", func() { p.Apply(stickyService()) }, 1},
			{"they come back", func() { p.Apply(stickyService(1, 2, 3)) }, 0},
			{"the Service leaves", func() { p.Apply(without("sticky")) }, 3},
		} {
			kernel.batches = nil
			step.do()
			report := mustSync(t, p)
			deleted := 0
			for _, batch := range kernel.batches {
				deleted += numbersDeleted(t, batch)
			}
			if deleted != step.deleted {
				t.Errorf("with %d clients, %s: %d numbers are deleted, want %d", clients, step.title, deleted, step.deleted)
			}
			written[step.title] = append(written[step.title], report.Deleted[model.IPv4], len(kernel.batches))
		}
	}
	for title, counts := range written {
		for at := range counts {
			if counts[at] != counts[at%2] {
				t.Errorf("%s: %v elements and batches in turn, with no clients, one and many; want the same", title, counts)
			}
		}
	}
}

// numbersDeleted returns how many numbers of endpoints a batch deletes. It must not name a client.
func numbersDeleted(t *testing.T, batch ruleset.Batch) int {
	t.Helper()
	deleted := 0
	for _, op := range batch.Ops {
		object, isElements := op.Object.(ruleset.ElementsObject)
		if isElements && object.Set.Dynamic {
			t.Errorf("a batch has elements of %s", object.Set.Name)
		}
		if isElements && op.Verb == ruleset.Delete && strings.HasPrefix(object.Set.Name, ruleset.Numbered.Name) {
			deleted += len(slices.Collect(object.Elements))
		}
	}
	return deleted
}

// TestAProxyThatStartsReadsNoMapOfClients, nor anything else that grows with the number of clients.
func TestAProxyThatStartsReadsNoMapOfClients(t *testing.T) {
	kernel := &scriptedKernel{}
	p := starting(kernel)
	p.Apply(stickyService(1, 2, 3))
	mustSync(t, p)
	kernel.remember(t, 1, 1)
	for range 2 {
		p = starting(kernel)
		p.Apply(stickyService(1, 2))
		mustSync(t, p)
		for name := range kernel.Tables.Objects(model.IPv4).Contents {
			if strings.HasPrefix(name, "affinity-") || name == ruleset.Numbered.Name {
				t.Errorf("the contents of %s are asked for", name)
			}
		}
	}
}

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
