package ruleset_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestNumbersExistBeforeAnythingLeadsToThem: a packet in flight while a plan is committed picks no number without an
// endpoint, and none that had another endpoint a moment before.
func TestNumbersExistBeforeAnythingLeadsToThem(t *testing.T) {
	r := start(t, stickyWeb(endpoints(1, 2, 3)...))
	for _, service := range []ruleset.Service{
		stickyWeb(endpoints(1, 2, 3, 4, 5)...), stickyWeb(endpoints(2, 6, 7)...), stickyWeb(colliding(t, 4)...), stickyWeb(endpoints(1)...),
		stickyBroadWeb(40), stickyBroadWeb(39), stickyWeb(endpoints(numbersUpTo(300)...)...),
	} {
		plan := r.plan(service)
		before := lookupsIn(t, &r.Tables, model.IPv4).numbered
		mustApply(t, &r.Tables, plan.Prerequisites)
		prepared := lookupsIn(t, &r.Tables, model.IPv4).numbered
		for key, endpoint := range before {
			if prepared[key] != endpoint {
				t.Errorf("the number %x led to %s before and leads to %s after the prerequisites", key.Number, endpoint, prepared[key])
			}
		}
		mustApply(t, &r.Tables, plan.Batch)
		r.mirror.Accept(plan)
		for key, endpoint := range lookupsIn(t, &r.Tables, model.IPv4).numbered {
			if prepared[key] != endpoint {
				t.Errorf("the number %x leads to %s, but did not after the prerequisites", key.Number, endpoint)
			}
		}
		checkNumbers(t, r)
	}
}

// stickyBroadWeb returns a Service with affinity, a dedicated map and another name than broad.
func stickyBroadWeb(slots int) ruleset.Service {
	port := broad(200, slots).Ports[0]
	port.ID.Service, port.Affinity = serviceName("web"), time.Hour
	return serviceOf(port)
}

// TestARemovedEndpointIsOneDeletion, whatever frontends lead to it and however many clients are stored with it: no plan
// reads those, and none writes into their maps.
func TestARemovedEndpointIsOneDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		have, want []ruleset.Service
		deleted    int
	}{
		"of one frontend":   {services(stickyWeb(endpoints(1, 2, 3)...)), services(stickyWeb(endpoints(1, 3)...)), 1},
		"of four frontends": {everyKindWith(podsOnNode2(1, 2, 3), affinity), everyKindWith(podsOnNode2(1, 3), affinity), 1},
		"of 200 frontends":  {services(stickyBroadWeb(40)), services(stickyBroadWeb(39)), 1},
		"in two views": {
			everyKindWith(podsOnNode1(1, 2, 3), affinity, externalLocal), everyKindWith(podsOnNode1(1, 3), affinity, externalLocal), 2,
		},
		"in one of two views": {
			everyKindWith(slices.Concat(podsOnNode1(1), podsOnNode2(2)), affinity, externalLocal),
			everyKindWith(podsOnNode1(1), affinity, externalLocal), 1,
		},
		"with several slots":   {services(stickyWeb(endpoints(1, 2, 2, 2)...)), services(stickyWeb(endpoints(1)...)), 1},
		"and another is added": {services(stickyWeb(endpoints(1, 2)...)), services(stickyWeb(endpoints(1, 3)...)), 1},
		"and would collide":    {services(stickyWeb(colliding(t, 2)...)), services(stickyWeb(colliding(t, 2)[:1]...)), 1},
		"none, of its slots":   {services(stickyWeb(endpoints(1, 2, 2)...)), services(stickyWeb(endpoints(1, 2)...)), 0},
		"none, for a timeout": {
			services(stickyWeb(endpoints(1, 2)...)), services(serviceOf(sticky(portWith("web", endpoints(1, 2)), time.Minute))), 0,
		},
		"none, for a node port": {everyKindWith(podsOnNode2(1, 2), affinity), everyKindWith(podsOnNode2(1, 2), affinity, withoutNodePort), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, test.have...)
			plan := r.changeAndCheckNumbers(t, test.want...)
			deleted := 0
			for _, op := range slices.Concat(plan.Prerequisites.Ops, plan.Batch.Ops) {
				object, isElements := op.Object.(ruleset.ElementsObject)
				if isElements && op.Verb == ruleset.Delete && strings.HasPrefix(object.Set.Name, "numbered") {
					deleted += len(slices.Collect(object.Elements))
				}
				if set, isSet := op.Object.(ruleset.SetObject); isElements && object.Set.Dynamic || isSet && set.Set.Dynamic {
					t.Errorf("the plan touches a map of clients: %v", operations(ruleset.Batch{Ops: []ruleset.Op{op}}))
				}
			}
			if deleted != test.deleted {
				t.Errorf("%d numbers are deleted, want %d: %v", deleted, test.deleted, planned(plan))
			}
		})
	}
}

// TestASlotThatComesBackBeforeTheCleanupIsReplaced: the kernel still has the slot, with the endpoint it had.
func TestASlotThatComesBackBeforeTheCleanupIsReplaced(t *testing.T) {
	r := start(t, serviceOf(portOf("web", "10.96.0.1", first, second)))
	r.change(t, serviceOf(portOf("web", "10.96.0.1", first)))
	plan := r.change(t, serviceOf(portOf("web", "10.96.0.1", first, third)))
	want := []string{
		"- services: 10.96.0.1 80 => class/1", "- endpoints: 10.96.0.1 80 slot/1 => 10.244.2.2 8080",
		"+ services: 10.96.0.1 80 => class/2", "+ endpoints: 10.96.0.1 80 slot/1 => 10.244.3.3 9090",
	}
	if diff := cmp.Diff(want, planned(plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if cleaned := r.cleanUp(t); cleaned != nil {
		t.Errorf("the cleanup deletes %v, want nothing", cleaned)
	}
}

// TestALeftoverIsReused after a flush: a map that is added again before the cleanup must not have old clients.
func TestALeftoverIsReused(t *testing.T) {
	plain := portOf("web", "10.96.0.1", first)
	r := start(t, serviceOf(sticky(plain, time.Hour)))
	r.change(t, serviceOf(portOf("web", "10.96.0.1")))
	plan := r.change(t, serviceOf(sticky(plain, time.Hour)))
	if diff := cmp.Diff([]string{"+ set affinity-0", "0 set affinity-0"}, planned(plan)[:2]); diff != "" {
		t.Errorf("first operations (-want +got):\n%s", diff)
	}
	if cleaned := r.cleanUp(t); cleaned != nil { // all is in use again
		t.Errorf("the cleanup deletes %v, want nothing", cleaned)
	}
}

// TestASlotThatComesBackWithAnotherNumberIsReplaced: the kernel still has the slot, with the number it had.
func TestASlotThatComesBackWithAnotherNumberIsReplaced(t *testing.T) {
	web := func(endpoints ...string) ruleset.Service {
		return serviceOf(sticky(portOf("web", "10.96.0.1", endpoints...), time.Hour))
	}
	r := start(t, web(first, second))
	r.changeAndCheckNumbers(t, web(first))
	plan := r.changeAndCheckNumbers(t, web(first, third))
	const slot = "sticky-endpoints: 10.96.0.1 80 slot/1 => "
	for _, want := range []string{"- " + slot + formatEndpoint(second), "+ " + slot + formatEndpoint(third)} {
		if !slices.Contains(planned(plan), want) {
			t.Errorf("the plan lacks %q: %q", want, planned(plan))
		}
	}
	r.cleanUp(t)
	checkNumbers(t, r)
}
