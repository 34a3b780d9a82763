package ruleset_test

import (
	"iter"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// someServices use every set and every kind of chain, in both families.
func someServices() []ruleset.Service {
	return services(
		serviceOf(
			local(sticky(portOf("web", "10.96.0.1", first, second, third), time.Hour), 1),
			sticky(portOf("web", "fd00:96::1", "[fd00:244::1]:8080"), time.Hour),
		),
		serviceOf(local(portOf("db", "10.96.0.2", first, second, "10.244.4.4:8080"), 1), portOf("db", "fd00:96::2")),
		serviceOf(withClass(portOf("kept-local", "10.96.0.3"), ruleset.DropClass)),
		serviceOf(withoutFrontends(portOf("without-frontends", "10.96.0.1", first))),
		desiredService(everyKind("open", 1), podsOnNode2(1, 2)...),
		desiredService(withAffinityAndLocalPolicy(everyKind("kept", 2)), slices.Concat(podsOnNode1(3), podsOnNode2(4))...),
		emptyService("headless"),
	)
}

// withAffinityAndLocalPolicy gives a Service session affinity and externalTrafficPolicy: Local.
func withAffinityAndLocalPolicy(service model.Service) model.Service {
	service.AffinityTimeout, service.ExternalTrafficLocal = time.Hour, true
	return service
}

// fullSync runs a full sync of tables that are not empty, and cleans up.
func fullSync(
	t testing.TB, tables *ruleset.Tables, wanted []ruleset.Service, change func(*ruleset.Objects),
) (*ruleset.Mirror, *ruleset.Plan) {
	t.Helper()
	found := map[model.Family]ruleset.Objects{}
	for _, family := range model.Families {
		objects := tables.Objects(family)
		change(&objects)
		found[family] = objects
	}
	mirror, plan := ruleset.PlanFullSync(bothFamilies, wanted, initialNodeState, found)
	mustApply(t, tables, plan.Batch)
	cleanUpAll(t, tables, mirror)
	return mirror, plan
}

func asFound(*ruleset.Objects) {}

func needRecreate(objects *ruleset.Objects) { objects.NeedsRecreate = true }

// TestFullSyncMakesAnyTablesTheSame: the tables equal those of a start with empty tables that restores the same numbers
// of session affinity.
func TestFullSyncMakesAnyTablesTheSame(t *testing.T) {
	fresh := start(t, someServices()...)
	// Nothing is left of other Services, or of earlier versions of these.
	others := services(
		serviceOf(sticky(portOf("web", "10.96.0.9", second), time.Minute)),
		serviceOf(local(sticky(portOf("old", "10.96.0.1", first, second), time.Hour), 2), portOf("old", "fd00:96::1", "[fd00:244::1]:8080")),
	)
	for name, test := range map[string]struct {
		before []ruleset.Service
		change func(*ruleset.Objects)
	}{
		"over the same tables":          {someServices(), asFound},
		"over tables of other Services": {others, asFound},
		"over tables without Services":  {nil, asFound},
		"recreating the same tables":    {someServices(), needRecreate},
		"recreating other tables":       {others, needRecreate},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, test.before...)
			mirror, _ := fullSync(t, &r.Tables, someServices(), test.change)
			if diff := cmp.Diff(text(t, freshTables(t, &r.Tables, someServices())), text(t, &r.Tables)); diff != "" {
				t.Errorf("tables (-from empty tables +after):\n%s", diff)
			}
			if !mirror.Equal(fresh.mirror) {
				t.Error("the mirror differs from that of a start with empty tables")
			}
			if again := planned(mirror.Plan(someServices(), initialNodeState)); again != nil {
				t.Errorf("a plan of the same Services is not empty: %v", again)
			}
		})
	}
}

// someServicesWith is the first of someServices with changed ports.
func someServicesWith(change func(*ruleset.Port)) ruleset.Service {
	service := someServices()[0]
	for i := range service.Ports {
		change(&service.Ports[i])
	}
	return service
}

func reversed(services []ruleset.Service) iter.Seq[ruleset.Service] {
	return func(yield func(ruleset.Service) bool) {
		for _, service := range slices.Backward(services) {
			if !yield(service) {
				return
			}
		}
	}
}

// freshTables are those of a start with empty tables, with the numbers of session affinity that some tables hold.
func freshTables(t testing.TB, with *ruleset.Tables, wanted []ruleset.Service) *ruleset.Tables {
	t.Helper()
	var fresh ruleset.Tables
	_, plan := ruleset.PlanFullSync(bothFamilies, wanted, initialNodeState, numbersInUse(with))
	mustApply(t, &fresh, plan.Batch)
	return &fresh
}

func TestFullSyncRepairsExternalModifications(t *testing.T) {
	class := uint32(ruleset.BalanceClass(3))
	dropping := func(chain string) ruleset.Chain {
		return ruleset.Chain{Name: chain, Hook: ruleset.NoHook,
			Rules: []ruleset.Rule{{ruleset.VerdictStatement{Verdict: ruleset.Verdict{Kind: ruleset.Drop}}}}}
	}
	elements := func(set ruleset.Set, list ...ruleset.Element) ruleset.Object {
		return ruleset.ElementsObject{Set: set, Elements: slices.Values(list)}
	}
	counting := ruleset.Chain{Name: "counting", Hook: ruleset.NoHook, Rules: []ruleset.Rule{{ruleset.Count{Counter: "other"}}}}
	for name, ops := range map[string][]ruleset.Op{
		"the table is deleted": {{Verb: ruleset.Delete, Object: ruleset.TableObject{}}},
		"a map is flushed":     {{Verb: ruleset.Flush, Object: ruleset.SetObject{Set: ruleset.Services}}},
		"a chain is flushed":   {{Verb: ruleset.Flush, Object: ruleset.ChainObject{Chain: ruleset.Chain{Name: "services"}}}},
		"a rule is added":      {{Verb: ruleset.Add, Object: ruleset.RulesObject{Chain: dropping("lb-3")}}},
		"an element is deleted": {
			{Verb: ruleset.Delete, Object: elements(ruleset.Dispatch, ruleset.Element{Key: ruleset.Tuple{Number: class}})},
		},
		"an element is changed": {
			{Verb: ruleset.Delete, Object: elements(ruleset.Dispatch, ruleset.Element{Key: ruleset.Tuple{Number: class}})},
			{Verb: ruleset.Add, Object: elements(ruleset.Dispatch, ruleset.Element{
				Key: ruleset.Tuple{Number: class}, Verdict: ruleset.Verdict{Kind: ruleset.Drop},
			})},
		},
		"an element is added": {{Verb: ruleset.Add, Object: elements(ruleset.ClusterIPs, ruleset.Element{
			Key: ruleset.Tuple{Addr: netip.MustParseAddr("192.0.2.9")},
		})}},
		"a chain and a map are added": {
			{Verb: ruleset.Add, Object: ruleset.ChainObject{Chain: dropping("other")}},
			{Verb: ruleset.Add, Object: ruleset.RulesObject{Chain: dropping("other")}},
			{Verb: ruleset.Add, Object: ruleset.SetObject{Set: ruleset.Set{Name: "other-set", Key: []ruleset.Type{ruleset.TypeAddr}}}},
		},
		"a counter and a chain that increments it are added": {
			{Verb: ruleset.Add, Object: ruleset.CounterObject{Name: "other"}},
			{Verb: ruleset.Add, Object: ruleset.ChainObject{Chain: counting}},
			{Verb: ruleset.Add, Object: ruleset.RulesObject{Chain: counting}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, someServices()...)
			want := text(t, &r.Tables)
			mustApply(t, &r.Tables, ruleset.Batch{Ops: ops})
			if text(t, &r.Tables) == want {
				t.Fatal("the tables did not change, so nothing is tested")
			}
			fullSync(t, &r.Tables, someServices(), asFound)
			if diff := cmp.Diff(want, text(t, &r.Tables)); diff != "" {
				t.Errorf("tables (-before +after):\n%s", diff)
			}
		})
	}
}

// TestPlansAndFullSyncLeadToTheSameMirror, whichever Services are first.
func TestPlansAndFullSyncLeadToTheSameMirror(t *testing.T) {
	atOnce := start(t, someServices()...)
	oneByOne, together := start(t), start(t)
	for _, service := range slices.Backward(someServices()) {
		oneByOne.change(t, service)
	}
	together.change(t, someServices()...)
	for name, r := range map[string]*rig{"one Service after another": oneByOne, "all in one plan": together} {
		if cleaned := r.cleanUp(t); cleaned != nil {
			t.Errorf("%s: cleanup deletes %v, want nothing", name, cleaned)
		}
		if !r.mirror.Equal(atOnce.mirror) {
			t.Errorf("%s: the mirror differs from that of a full sync", name)
		}
		if diff := cmp.Diff(text(t, freshTables(t, &r.Tables, someServices())), text(t, &r.Tables)); diff != "" {
			t.Errorf("%s: tables (-full sync +plan):\n%s", name, diff)
		}
	}
}

func TestMirrorsThatDifferAreNotEqual(t *testing.T) {
	base := start(t, someServices()...).mirror
	for name, change := range map[string]ruleset.Service{
		"a missing Service":     emptyService("db"),
		"an extra Service":      serviceOf(portOf("new", "10.96.0.8")),
		"another endpoint":      serviceOf(local(portOf("db", "10.96.0.2", first, second, third), 1), portOf("db", "fd00:96::2")),
		"an endpoint not local": serviceOf(portOf("db", "10.96.0.2", first, second, "10.244.4.4:8080"), portOf("db", "fd00:96::2")),
		"a missing family":      serviceOf(local(portOf("db", "10.96.0.2", first, second, "10.244.4.4:8080"), 1)),
		"a leftover chain":      emptyService("web"),
		"another timeout":       someServicesWith(func(port *ruleset.Port) { port.Affinity *= 2 }),
		"no affinity":           someServicesWith(func(port *ruleset.Port) { port.Affinity = 0 }),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, someServices()...)
			r.change(t, change)
			if r.mirror.Equal(base) || base.Equal(r.mirror) {
				t.Error("the mirrors compare as equal")
			}
		})
	}
	moved := start(t, someServices()...)
	moved.change(t, serviceOf(portOf("db", "10.96.0.2"), portOf("db", "fd00:96::2")))
	moved.change(t, serviceOf(local(portOf("db", "10.96.0.2", "10.244.4.4:8080", second, first), 0), portOf("db", "fd00:96::2")))
	moved.change(t, serviceOf(local(portOf("db", "10.96.0.2", first, second, "10.244.4.4:8080"), 1), portOf("db", "fd00:96::2")))
	moved.cleanUp(t)
	if !moved.mirror.Equal(base) {
		t.Error("mirrors that differ only in the order of slots do not compare as equal")
	}
	others := start(t, slices.Collect(reversed(someServices()))...)
	if cmp.Equal(numbersOf(others.mirror), numbersOf(base), compareAddrPorts) || !others.mirror.Equal(base) {
		t.Error("mirrors that differ only in affinity numbers do not compare as equal, or do not differ")
	}
}
