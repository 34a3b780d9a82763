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

func TestPlansOfAffinity(t *testing.T) {
	plain := portOf("web", "10.96.0.1", first, second)
	other := portOf("web", "10.96.0.1", first, third)
	const dialled = "10.96.0.1 80"
	one, two, three := endpointInShort(first), endpointInShort(second), endpointInShort(third)
	slots := func(numbers ...string) string {
		return dialled + " slot/0 => " + numbers[0] + ", " + dialled + " slot/1 => " + numbers[1]
	}
	rewrite := func(chain string) []string {
		return []string{"+ chain " + chain, "0 chain " + chain, "+ rules of " + chain}
	}
	numbered := func(of ...string) string { return strings.Join(sorted(of...), ", ") }
	const toOne, toTwo, toThree = " => 10.244.1.1 8080", " => 10.244.2.2 8080", " => 10.244.3.3 9090"
	plainSlots := dialled + " slot/0" + toOne + ", " + dialled + " slot/1" + toTwo
	checkPlans(t, map[string]planCase{
		"affinity is switched on: what frontends lead to first, and their classes last": {
			have: services(serviceOf(plain)), want: services(serviceOf(sticky(plain, time.Hour))),
			plan: slices.Concat([]string{"+ set affinity-0", "0 set affinity-0"}, rewrite("sticky-3600-0"), []string{
				"+ dispatch: sticky/3600-0 => jump sticky-3600-0",
				"+ sticky-dispatch: class/2 => jump lb-2",
				"+ numbered: " + numbered(one+toOne, two+toTwo),
				"- services: " + dialled + " => class/2",
				"+ services: " + dialled + " => sticky/3600-0",
				"+ sticky: " + dialled + " => class/2",
				"+ sticky-ports: " + dialled + " => port",
				"+ sticky-endpoints: " + slots(one, two),
			}),
			sweep: []string{"- endpoints: " + plainSlots},
		},
		"affinity is switched off: what frontends lead to at once, the rest with the sweep": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(plain)),
			plan: []string{
				"- services: " + dialled + " => sticky/3600-0",
				"- sticky: " + dialled + " => class/2",
				"- sticky-ports: " + dialled + " => port",
				"- numbered: " + numbered(one+toOne, two+toTwo),
				"+ services: " + dialled + " => class/2",
				"+ endpoints: " + plainSlots,
			},
			sweep: []string{
				"- dispatch: sticky/3600-0 => jump sticky-3600-0", "- sticky-dispatch: class/2 => jump lb-2",
				"- sticky-endpoints: " + slots(one, two),
				"0 chain sticky-3600-0", "- set affinity-0", "0 chain sticky-3600-0", "- chain sticky-3600-0",
			},
		},
		"another timeout: the frontend's class, and a chain that writes the new one into the same map": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(sticky(plain, time.Minute))),
			plan: slices.Concat(rewrite("sticky-60-0"), []string{
				"+ dispatch: sticky/60-0 => jump sticky-60-0",
				"- services: " + dialled + " => sticky/3600-0", "+ services: " + dialled + " => sticky/60-0",
			}),
			sweep: []string{"- dispatch: sticky/3600-0 => jump sticky-3600-0", "0 chain sticky-3600-0", "- chain sticky-3600-0"},
		},
		"an endpoint is replaced: its slot, and its number, which is all that its clients lose": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(sticky(other, time.Hour))),
			plan: []string{
				"+ numbered: " + three + toThree,
				"- sticky-endpoints: " + dialled + " slot/1 => " + two, "- numbered: " + two + toTwo,
				"+ sticky-endpoints: " + dialled + " slot/1 => " + three,
			},
		},
		"an endpoint comes: its number before its slot": {
			have: services(serviceOf(sticky(plain, time.Hour))),
			want: services(serviceOf(sticky(portOf("web", "10.96.0.1", first, second, third), time.Hour))),
			plan: []string{
				"+ sticky-dispatch: class/3 => jump lb-3", "+ numbered: " + three + toThree,
				"- sticky: " + dialled + " => class/2", "+ sticky: " + dialled + " => class/3",
				"+ sticky-endpoints: " + dialled + " slot/2 => " + three,
			},
			sweep: []string{"- sticky-dispatch: class/2 => jump lb-2"},
		},
		"an endpoint leaves: its number at once, its slot with the sweep": {
			have: services(serviceOf(sticky(plain, time.Hour))),
			want: services(serviceOf(sticky(portOf("web", "10.96.0.1", first), time.Hour))),
			plan: []string{
				"+ sticky-dispatch: class/1 => jump lb-1",
				"- sticky: " + dialled + " => class/2", "- numbered: " + two + toTwo,
				"+ sticky: " + dialled + " => class/1",
			},
			sweep: []string{"- sticky-dispatch: class/2 => jump lb-2", "- sticky-endpoints: " + dialled + " slot/1 => " + two},
		},
		"all endpoints leave: clients are refused, and the numbers go at once": {
			have: services(serviceOf(sticky(plain, time.Hour))), want: services(serviceOf(sticky(portOf("web", "10.96.0.1"), time.Hour))),
			plan: []string{
				"- services: " + dialled + " => sticky/3600-0",
				"- sticky: " + dialled + " => class/2",
				"- sticky-ports: " + dialled + " => port",
				"- numbered: " + numbered(one+toOne, two+toTwo),
				"+ services: " + dialled + " => refuse",
			},
			sweep: []string{
				"- dispatch: sticky/3600-0 => jump sticky-3600-0", "- sticky-dispatch: class/2 => jump lb-2",
				"- sticky-endpoints: " + slots(one, two),
				"0 chain sticky-3600-0", "- set affinity-0", "0 chain sticky-3600-0", "- chain sticky-3600-0",
			},
		},
		"a second Service: a map and a chain of its own, as long as there are any": {
			have: services(serviceOf(sticky(plain, time.Hour))),
			want: services(serviceOf(sticky(portOf("db", "10.96.0.2", first, second), time.Hour))),
			plan: slices.Concat([]string{"+ set affinity-1", "0 set affinity-1"}, rewrite("sticky-3600-1"), []string{
				"+ dispatch: sticky/3600-1 => jump sticky-3600-1",
				"+ numbered: " + numbered(one+toOne, two+toTwo),
				"+ services: 10.96.0.2 80 => sticky/3600-1",
				"+ sticky: 10.96.0.2 80 => class/2",
				"+ sticky-ports: 10.96.0.2 80 => port",
				"+ sticky-endpoints: " + strings.ReplaceAll(slots(one, two), dialled, "10.96.0.2 80"),
				"+ cluster-ips: 10.96.0.2",
			}),
		},
		"the seventeenth: elements alone": {
			have: sixteenSticky(), want: services(serviceOf(sticky(portOf("db", "10.96.9.2", first, second, third), time.Hour))),
			plan: []string{
				"+ numbered: " + numbered(one+toOne, two+toTwo, three+toThree),
				"+ services: 10.96.9.2 80 => sticky/3600-0",
				"+ sticky: 10.96.9.2 80 => class/3",
				"+ sticky-ports: 10.96.9.2 80 => port",
				"+ sticky-endpoints: 10.96.9.2 80 slot/0 => " + one + ", 10.96.9.2 80 slot/1 => " + two + ", 10.96.9.2 80 slot/2 => " + three,
				"+ cluster-ips: 10.96.9.2",
			},
		},
		"one of two that share a map leaves: the map stays": {
			have: append(sixteenSticky(), serviceOf(sticky(portOf("db", "10.96.9.2", first, second, third), time.Hour))),
			want: services(nothing("db")),
			plan: []string{
				"- services: 10.96.9.2 80 => sticky/3600-0",
				"- sticky: 10.96.9.2 80 => class/3",
				"- sticky-ports: 10.96.9.2 80 => port",
				"- numbered: " + numbered(one+toOne, two+toTwo, three+toThree),
				"- cluster-ips: 10.96.9.2",
			},
			sweep: []string{
				"- sticky-endpoints: 10.96.9.2 80 slot/0 => " + one + ", 10.96.9.2 80 slot/1 => " + two + ", 10.96.9.2 80 slot/2 => " + three,
			},
		},
	})
}

// sixteenSticky are so many Services that all shards are in use.
func sixteenSticky() []ruleset.Service { return manySticky(ruleset.Shards()[0]) }

// TestASlotThatComesBackBeforeTheSweepIsReplaced: the kernel still has the slot, with the endpoint it had.
func TestASlotThatComesBackBeforeTheSweepIsReplaced(t *testing.T) {
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
	if swept := r.sweep(t); swept != nil {
		t.Errorf("the sweep removes %v", swept)
	}
}

// TestANumberIsThereBeforeAnythingLeadsToIt: a packet that is on its way while a plan is committed draws no number that
// leads nowhere, and none that leads to another endpoint than a moment before.
func TestANumberIsThereBeforeAnythingLeadsToIt(t *testing.T) {
	r := start(t, stickyWeb(endpoints(1, 2, 3)...))
	for _, service := range []ruleset.Service{
		stickyWeb(endpoints(1, 2, 3, 4, 5)...), stickyWeb(endpoints(2, 6, 7)...), stickyWeb(colliding(t, 4)...), stickyWeb(endpoints(1)...),
		stickyBroadly(40), stickyBroadly(39), stickyWeb(endpoints(numbersUpTo(300)...)...),
	} {
		plan := r.plan(service)
		before := mapsIn(t, &r.Tables, model.IPv4).numbered
		mustApply(t, &r.Tables, plan.Prepare)
		prepared := mapsIn(t, &r.Tables, model.IPv4).numbered
		for key, endpoint := range before {
			if prepared[key] != endpoint {
				t.Errorf("the number %x led to %s, and in between leads to %s", key.Number, endpoint, prepared[key])
			}
		}
		mustApply(t, &r.Tables, plan.Batch)
		r.mirror.Accept(plan)
		for key, endpoint := range mapsIn(t, &r.Tables, model.IPv4).numbered {
			if prepared[key] != endpoint {
				t.Errorf("the number %x leads to %s, for which it was not prepared", key.Number, endpoint)
			}
		}
		checkNumbers(t, r)
	}
}

// stickyBroadly is a wide Service with affinity and another name than broad.
func stickyBroadly(slots int) ruleset.Service {
	port := broad(200, slots).Ports[0]
	port.ID.Service, port.Affinity = named("web"), time.Hour
	return serviceOf(port)
}

// TestAnEndpointThatLeavesIsOneDeletion, whatever frontends lead to it and however many clients are remembered with it:
// no plan looks at those, and none writes into their maps.
func TestAnEndpointThatLeavesIsOneDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		have, want []ruleset.Service
		deleted    int
	}{
		"of one frontend":   {services(stickyWeb(endpoints(1, 2, 3)...)), services(stickyWeb(endpoints(1, 3)...)), 1},
		"of four frontends": {everyKindWith(on2(1, 2, 3), affinity), everyKindWith(on2(1, 3), affinity), 1},
		"of 200 frontends":  {services(stickyBroadly(40)), services(stickyBroadly(39)), 1},
		"in two views": {
			everyKindWith(on1(1, 2, 3), affinity, externalLocal), everyKindWith(on1(1, 3), affinity, externalLocal), 2,
		},
		"in one of two views": {
			everyKindWith(slices.Concat(on1(1), on2(2)), affinity, externalLocal), everyKindWith(on1(1), affinity, externalLocal), 1,
		},
		"with several slots": {services(stickyWeb(endpoints(1, 2, 2, 2)...)), services(stickyWeb(endpoints(1)...)), 1},
		"and another comes":  {services(stickyWeb(endpoints(1, 2)...)), services(stickyWeb(endpoints(1, 3)...)), 1},
		"and would collide":  {services(stickyWeb(colliding(t, 2)...)), services(stickyWeb(colliding(t, 2)[:1]...)), 1},
		"none, of its slots": {services(stickyWeb(endpoints(1, 2, 2)...)), services(stickyWeb(endpoints(1, 2)...)), 0},
		"none, for a timeout": {
			services(stickyWeb(endpoints(1, 2)...)), services(serviceOf(sticky(portWith("web", endpoints(1, 2)), time.Minute))), 0,
		},
		"none, for a node port": {everyKindWith(on2(1, 2), affinity), everyKindWith(on2(1, 2), affinity, withoutNodePort), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, test.have...)
			plan := r.numbered(t, test.want...)
			deleted := 0
			for _, op := range slices.Concat(plan.Prepare.Ops, plan.Batch.Ops) {
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

// TestALeftoverIsTakenUpAgain, emptied: what comes back before the sweep must not bring clients of another time along.
func TestALeftoverIsTakenUpAgain(t *testing.T) {
	plain := portOf("web", "10.96.0.1", first)
	r := start(t, serviceOf(sticky(plain, time.Hour)))
	r.change(t, serviceOf(portOf("web", "10.96.0.1")))
	plan := r.change(t, serviceOf(sticky(plain, time.Hour)))
	if diff := cmp.Diff([]string{"+ set affinity-0", "0 set affinity-0"}, planned(plan)[:2]); diff != "" {
		t.Errorf("first operations (-want +got):\n%s", diff)
	}
	if swept := r.sweep(t); swept != nil { // all is in use again
		t.Errorf("the sweep removes %v", swept)
	}
}

// TestASlotThatComesBackWithAnotherNumberIsReplaced: the kernel still has the slot, with the number it had.
func TestASlotThatComesBackWithAnotherNumberIsReplaced(t *testing.T) {
	web := func(endpoints ...string) ruleset.Service {
		return serviceOf(sticky(portOf("web", "10.96.0.1", endpoints...), time.Hour))
	}
	r := start(t, web(first, second))
	r.numbered(t, web(first))
	plan := r.numbered(t, web(first, third))
	const slot = "sticky-endpoints: 10.96.0.1 80 slot/1 => "
	for _, want := range []string{"- " + slot + endpointInShort(second), "+ " + slot + endpointInShort(third)} {
		if !slices.Contains(planned(plan), want) {
			t.Errorf("the plan does not say %q: %q", want, planned(plan))
		}
	}
	r.sweep(t)
	checkNumbers(t, r)
}
