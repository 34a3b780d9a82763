package ruleset_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Short forms of operations on the IPv4 table.
func opOn(verb ruleset.Verb, object ruleset.Object) ruleset.Op {
	return ruleset.Op{Verb: verb, Family: model.IPv4, Object: object}
}

func setOp(verb ruleset.Verb, set ruleset.Set) ruleset.Op {
	return opOn(verb, ruleset.SetObject{Set: set})
}

func chainOp(verb ruleset.Verb, name string) ruleset.Op {
	return opOn(verb, ruleset.ChainObject{Chain: ruleset.Chain{Name: name, Hook: ruleset.NoHook}})
}

func ruleOp(chain string, statements ...ruleset.Statement) ruleset.Op {
	return opOn(ruleset.Add, ruleset.RulesObject{Chain: ruleset.Chain{Name: chain, Rules: []ruleset.Rule{statements}}})
}

func elementOp(verb ruleset.Verb, set ruleset.Set, elements ...ruleset.Element) ruleset.Op {
	return opOn(verb, ruleset.ElementsObject{Set: set, Elements: slices.Values(elements)})
}

// Sets that packets fill: one that no rule uses, and one that does not exist.
var unused, missing = ruleset.Set{Name: "unused", Key: ruleset.Affinity(0).Key, Value: ruleset.Affinity(0).Value, Dynamic: true},
	ruleset.Affinity(3)

// leadingTo returns the dispatch entry of a class.
func leadingTo(class ruleset.Class, kind ruleset.VerdictKind, chain string) ruleset.Element {
	return ruleset.Element{Key: ruleset.Tuple{Number: uint32(class)}, Verdict: ruleset.Verdict{Kind: kind, Chain: chain}}
}

func address(text string) ruleset.Element {
	return ruleset.Element{Key: ruleset.Tuple{Addr: netip.MustParseAddr(text)}}
}

// smallTables returns tables with a set that is used and one that is not, a counter, and chains to which a rule, an
// element and nothing lead.
func smallTables(t testing.TB) *ruleset.Tables {
	t.Helper()
	tables := &ruleset.Tables{}
	mustApply(t, tables, ruleset.Batch{Ops: []ruleset.Op{
		opOn(ruleset.Add, ruleset.TableObject{}), opOn(ruleset.Add, ruleset.CounterObject{Name: "raised"}),
		setOp(ruleset.Add, ruleset.Dispatch), setOp(ruleset.Add, ruleset.ClusterIPs), setOp(ruleset.Add, unused),
		chainOp(ruleset.Add, "by-rule"), chainOp(ruleset.Add, "by-element"), chainOp(ruleset.Add, "unreferenced"), chainOp(ruleset.Add, "full"),
		ruleOp("full", ruleset.InSet{Key: []ruleset.Field{ruleset.DestinationAddr}, Set: ruleset.ClusterIPs}, ruleset.Count{Counter: "raised"},
			ruleset.VerdictStatement{Verdict: ruleset.Verdict{Kind: ruleset.Goto, Chain: "by-rule"}}),
		elementOp(ruleset.Add, ruleset.Dispatch, leadingTo(1, ruleset.Goto, "by-element"), leadingTo(2, ruleset.Drop, "")),
		elementOp(ruleset.Add, ruleset.ClusterIPs, address("10.96.0.1")),
	}})
	return tables
}

func TestErrorsOfApply(t *testing.T) {
	goTo := func(chain string) ruleset.Statement {
		return ruleset.VerdictStatement{Verdict: ruleset.Verdict{Kind: ruleset.Goto, Chain: chain}}
	}
	ip6 := func(op ruleset.Op) ruleset.Op { op.Family = model.IPv6; return op }
	otherValue, otherHook := ruleset.Dispatch, ruleset.Chain{Name: "unreferenced", Hook: ruleset.Output}
	otherValue.Value = []ruleset.Type{ruleset.TypeClass}
	dynamic := ruleset.Dispatch
	dynamic.Dynamic = true
	otherPriority := ruleset.Chain{Name: "unreferenced", Hook: ruleset.NoHook, Priority: ruleset.PriorityDNAT}
	tests := map[string]struct {
		op    ruleset.Op
		err   error
		names string // in the message
	}{
		"delete a missing table":         {ip6(opOn(ruleset.Delete, ruleset.TableObject{})), ruleset.ErrNotExist, "table ip6 vicinity"},
		"add a set without a table":      {ip6(setOp(ruleset.Add, ruleset.Dispatch)), ruleset.ErrNotExist, "table ip6 vicinity"},
		"add a chain without a table":    {ip6(chainOp(ruleset.Add, "unreferenced")), ruleset.ErrNotExist, "table ip6 vicinity"},
		"add a rule without a table":     {ip6(ruleOp("full")), ruleset.ErrNotExist, "table ip6 vicinity"},
		"add an element without a table": {ip6(elementOp(ruleset.Add, ruleset.Dispatch)), ruleset.ErrNotExist, "table ip6 vicinity"},
		"delete a missing set":           {setOp(ruleset.Delete, missing), ruleset.ErrNotExist, "set affinity-3"},
		"flush a missing set":            {setOp(ruleset.Flush, missing), ruleset.ErrNotExist, "set affinity-3"},
		"delete a missing counter": {
			opOn(ruleset.Delete, ruleset.CounterObject{Name: "missing"}), ruleset.ErrNotExist, "counter missing",
		},
		"add a counter without a table": {
			ip6(opOn(ruleset.Add, ruleset.CounterObject{Name: "new"})), ruleset.ErrNotExist, "table ip6 vicinity",
		},
		"add a rule with a missing counter": {ruleOp("full", ruleset.Count{Counter: "missing"}), ruleset.ErrNotExist, "counter missing"},
		"delete a counter that a rule uses": {
			opOn(ruleset.Delete, ruleset.CounterObject{Name: "raised"}), ruleset.ErrBusy, "counter raised",
		},
		"delete a missing chain":                 {chainOp(ruleset.Delete, "missing"), ruleset.ErrNotExist, "chain missing"},
		"flush a missing chain":                  {chainOp(ruleset.Flush, "missing"), ruleset.ErrNotExist, "chain missing"},
		"add a rule to a missing chain":          {ruleOp("missing", goTo("unreferenced")), ruleset.ErrNotExist, "chain missing"},
		"add a rule with a missing target":       {ruleOp("full", goTo("missing")), ruleset.ErrNotExist, "chain missing"},
		"add an InSet of a missing set":          {ruleOp("full", ruleset.InSet{Set: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add a FromRange of a missing set":       {ruleOp("full", ruleset.FromRange{Set: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add a DNAT of a missing map":            {ruleOp("full", ruleset.DNAT{Map: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add an UpdateAffinity of a missing map": {ruleOp("full", ruleset.UpdateAffinity{Map: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add a DeleteAffinity of a missing map":  {ruleOp("full", ruleset.DeleteAffinity{Map: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add a VerdictOf of a missing map":       {ruleOp("full", ruleset.VerdictOf{Map: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add a SetPriority of a missing map":     {ruleOp("full", ruleset.SetPriority{Map: missing}), ruleset.ErrNotExist, "set affinity-3"},
		"add an element to a missing set":        {elementOp(ruleset.Add, missing, address("10.96.0.1")), ruleset.ErrNotExist, "set affinity-3"},
		"delete a missing element": {
			elementOp(ruleset.Delete, ruleset.ClusterIPs, address("10.96.0.2")), ruleset.ErrNotExist, "10.96.0.2",
		},
		"add an element with a missing target": {
			elementOp(ruleset.Add, ruleset.Dispatch, leadingTo(3, ruleset.Goto, "missing")), ruleset.ErrNotExist, "chain missing",
		},
		"add an element with another value": {
			elementOp(ruleset.Add, ruleset.Dispatch, leadingTo(2, ruleset.Goto, "unreferenced")), ruleset.ErrExist, "0:2 : goto unreferenced",
		},
		"add a map with other values":   {setOp(ruleset.Add, otherValue), ruleset.ErrExist, "set dispatch"},
		"add a chain with another hook": {opOn(ruleset.Add, ruleset.ChainObject{Chain: otherHook}), ruleset.ErrExist, "chain unreferenced"},
		"add a chain with another priority": {opOn(ruleset.Add, ruleset.ChainObject{Chain: otherPriority}), ruleset.ErrExist,
			"chain unreferenced"},
		"add a map that packets fill":        {setOp(ruleset.Add, dynamic), ruleset.ErrExist, "set dispatch"},
		"delete a set that a rule reads":     {setOp(ruleset.Delete, ruleset.ClusterIPs), ruleset.ErrBusy, "set cluster-ips"},
		"delete a chain that has rules":      {chainOp(ruleset.Delete, "full"), ruleset.ErrBusy, "chain full"},
		"delete a chain a rule leads to":     {chainOp(ruleset.Delete, "by-rule"), ruleset.ErrBusy, "chain by-rule"},
		"delete a chain an element leads to": {chainOp(ruleset.Delete, "by-element"), ruleset.ErrBusy, "chain by-element"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tables := smallTables(t)
			before := text(t, tables)
			// Operations before the failed one must be undone, too.
			err := tables.Apply(ruleset.Batch{Ops: []ruleset.Op{
				chainOp(ruleset.Flush, "by-rule"), ruleOp("by-rule", ruleset.Reject{}), chainOp(ruleset.Add, "new"),
				elementOp(ruleset.Delete, ruleset.ClusterIPs, address("10.96.0.1")), setOp(ruleset.Delete, unused),
				test.op,
			}})
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if !strings.HasPrefix(err.Error(), "operation 6 of 6: ") || !strings.Contains(err.Error(), test.names) {
				t.Errorf("error %q, want it about operation 6 of 6 and %q", err, test.names)
			}
			if diff := cmp.Diff(before, text(t, tables)); diff != "" {
				t.Errorf("a batch that failed changed the tables (-before +after):\n%s", diff)
			}
		})
	}
}

func TestBatchesThatApplyAccepts(t *testing.T) {
	tests := map[string]struct {
		ops       []ruleset.Op
		same      bool   // the tables are as before
		has, lost string // lines that exist afterwards, or not any more
	}{
		"nothing":           {nil, true, "", ""},
		"an existing table": {[]ruleset.Op{opOn(ruleset.Add, ruleset.TableObject{})}, true, "", ""},
		"an existing set":   {[]ruleset.Op{setOp(ruleset.Add, ruleset.ClusterIPs)}, true, "", ""},
		"an identical element": {
			[]ruleset.Op{elementOp(ruleset.Add, ruleset.Dispatch, leadingTo(2, ruleset.Drop, ""))}, true, "", "",
		},
		"an existing counter": {[]ruleset.Op{opOn(ruleset.Add, ruleset.CounterObject{Name: "raised"})}, true, "", ""},
		"a new counter":       {[]ruleset.Op{opOn(ruleset.Add, ruleset.CounterObject{Name: "new"})}, false, "counter new {", ""},
		"an unused counter is deleted": {
			[]ruleset.Op{chainOp(ruleset.Flush, "full"), opOn(ruleset.Delete, ruleset.CounterObject{Name: "raised"})}, false, "", "raised",
		},
		"a chain with rules keeps them": {[]ruleset.Op{chainOp(ruleset.Add, "full")}, true, "", ""},
		"no elements":                   {[]ruleset.Op{elementOp(ruleset.Add, ruleset.ClusterIPs)}, true, "", ""},
		"a rule is appended":            {[]ruleset.Op{ruleOp("full", ruleset.Reject{})}, false, "\t\treject\n\t}", ""},
		"a set is flushed":              {[]ruleset.Op{setOp(ruleset.Flush, ruleset.ClusterIPs)}, false, "set cluster-ips", "10.96.0.1"},
		"an unused set is deleted":      {[]ruleset.Op{setOp(ruleset.Delete, unused)}, false, "", "unused"},
		"an unused chain is deleted":    {[]ruleset.Op{chainOp(ruleset.Delete, "unreferenced")}, false, "", "unreferenced"},
		"a chain is deleted after a flush": {
			[]ruleset.Op{chainOp(ruleset.Flush, "full"), chainOp(ruleset.Delete, "full")}, false, "", "chain full",
		},
		"a chain is deleted after the rule that led there": {
			[]ruleset.Op{chainOp(ruleset.Flush, "full"), chainOp(ruleset.Delete, "by-rule")}, false, "chain full", "by-rule",
		},
		"a chain is deleted after the element that led there": {
			[]ruleset.Op{
				elementOp(ruleset.Delete, ruleset.Dispatch, leadingTo(1, ruleset.Goto, "by-element")),
				chainOp(ruleset.Delete, "by-element"),
			}, false, "0:2 : drop", "by-element",
		},
		"an element with another value after the old one": {
			[]ruleset.Op{
				elementOp(ruleset.Delete, ruleset.Dispatch, leadingTo(2, ruleset.Drop, "")),
				elementOp(ruleset.Add, ruleset.Dispatch, leadingTo(2, ruleset.Goto, "unreferenced")),
			}, false, "0:2 : goto unreferenced", "drop",
		},
		"the table is deleted with its content": {[]ruleset.Op{opOn(ruleset.Delete, ruleset.TableObject{})}, false, "", "table"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tables := smallTables(t)
			before := text(t, tables)
			mustApply(t, tables, ruleset.Batch{Ops: test.ops})
			after := text(t, tables)
			if (before == after) != test.same {
				t.Errorf("the tables are the same: %v, want %v; now:\n%s", before == after, test.same, after)
			}
			if !strings.Contains(after, test.has) || test.lost != "" && strings.Contains(after, test.lost) {
				t.Errorf("want %q and not %q in:\n%s", test.has, test.lost, after)
			}
		})
	}
}

func TestObjectsOfTables(t *testing.T) {
	tables := smallTables(t)
	want := ruleset.Objects{
		Table: true, Chains: []string{"by-element", "by-rule", "full", "unreferenced"}, Sets: []string{"cluster-ips", "dispatch", "unused"},
		Counters: []string{"raised"},
	}
	if diff := cmp.Diff(want, tables.Objects(model.IPv4)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ruleset.Objects{}, tables.Objects(model.IPv6)); diff != "" {
		t.Errorf("objects of a missing table (-want +got):\n%s", diff)
	}
	if _, err := tables.Elements(model.IPv4, missing); !errors.Is(err, ruleset.ErrNotExist) {
		t.Errorf("elements of a missing set: error %v, want %v", err, ruleset.ErrNotExist)
	}
}

func TestABatchCountsItsElements(t *testing.T) {
	walked := start(t, someServices()...)
	_, fresh := ruleset.PlanFullSync(bothFamilies, someServices(), initialNodeState, nil)
	for name, test := range map[string]struct {
		batch            ruleset.Batch
		added4, deleted4 int
		added6           int
	}{
		// Frontends: 9 + 2 node ports; dispatch: 34 classes that every table has, and 3; endpoints: 9 + 2; sticky: 4 + 1, and
		// 3 dispatched; their ports: 4 + 1, outside 2 + 1; their slots: 11 + 3, and 6 numbers; policies: 4 + 2; restricted:
		// 2, and their one list: a prefix of 25 bits that is two of 26, and an address; ClusterIPs: 5; node port addresses:
		// 1; hairpin: 2, one of which two Services share.
		"a complete batch": {fresh.Batch, 114, 0, 102},
		// Its frontend and its ClusterIP; its endpoint is left to the cleanup.
		"a plan":  {walked.plan(emptyService("kept-local")).Batch, 0, 2, 0},
		"nothing": {ruleset.Batch{}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"before", "after"} {
				got := []int{
					test.batch.Count(model.IPv4, ruleset.Add), test.batch.Count(model.IPv4, ruleset.Delete), test.batch.Count(model.IPv6, ruleset.Add),
				}
				if diff := cmp.Diff([]int{test.added4, test.deleted4, test.added6}, got); diff != "" {
					t.Errorf("%s an iteration: counts (-want +got):\n%s", when, diff)
				}
				operations(test.batch)
			}
		})
	}
}
