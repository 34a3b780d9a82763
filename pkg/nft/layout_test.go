//go:build linux

package nft

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/netnstest"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// addresses are what the tests' rules and elements are made of.
type addresses struct {
	service, endpoint, client netip.Addr
	cluster                   netip.Prefix
}

func addressesOf(family model.Family) addresses {
	if family == model.IPv4 {
		return addresses{
			service:  netip.MustParseAddr("10.96.0.1"),
			endpoint: netip.MustParseAddr("10.244.0.2"),
			client:   netip.MustParseAddr("192.0.2.7"),
			cluster:  netip.MustParsePrefix("10.244.0.0/16"),
		}
	}
	return addresses{
		service:  netip.MustParseAddr("fd00:10:96::1"),
		endpoint: netip.MustParseAddr("fd00:10:244::2"),
		client:   netip.MustParseAddr("2001:db8::7"),
		cluster:  netip.MustParsePrefix("fd00:10:244::/56"),
	}
}

// sticky is the map of a Service port with session affinity.
var sticky = ruleset.Affinity("affinity-default/web/tcp/http")

var (
	frontendFields = []ruleset.Field{ruleset.DestinationAddr, ruleset.L4Proto, ruleset.DestinationPort}
	originalFields = []ruleset.Field{ruleset.OriginalDestinationAddr, ruleset.L4Proto, ruleset.OriginalDestinationPort}
	hairpinFields  = []ruleset.Field{ruleset.SourceAddr, ruleset.DestinationAddr, ruleset.L4Proto, ruleset.DestinationPort}
)

func jump(chain string) ruleset.Rule {
	return ruleset.Rule{ruleset.Do{Verdict: ruleset.Verdict{Kind: ruleset.Jump, Chain: chain}}}
}

// everyChain holds every statement. Chains stand behind those that they lead to.
func everyChain(family model.Family) []ruleset.Chain {
	tcp := ruleset.ProtocolIs{Protocol: model.TCP}
	goRefuse := ruleset.Do{Verdict: ruleset.Verdict{Kind: ruleset.Goto, Chain: "refuse"}}
	regular := func(name string, rules ...ruleset.Rule) ruleset.Chain {
		return ruleset.Chain{Name: name, Hook: ruleset.NoHook, Rules: rules}
	}
	return []ruleset.Chain{
		regular("refuse", ruleset.Rule{ruleset.Reject{}}),
		regular("drop-all", ruleset.Rule{ruleset.Do{Verdict: ruleset.Verdict{Kind: ruleset.Drop}}}),
		regular("reset-tcp", ruleset.Rule{tcp, ruleset.Reject{TCPReset: true}}),
		regular("balance", ruleset.Rule{ruleset.DNAT{Key: append(slices.Clone(frontendFields), ruleset.Priority), Map: ruleset.Endpoints}}),
		regular("lb-3", ruleset.Rule{ruleset.DrawSlot{Slots: 3, First: 0xfd000000},
			ruleset.Do{Verdict: ruleset.Verdict{Kind: ruleset.Goto, Chain: "balance"}}}),
		regular("sticky-default/web/tcp/http",
			ruleset.Rule{tcp, ruleset.DNAT{Key: []ruleset.Field{ruleset.SourceAddr}, Map: sticky, Port: 8080}}),
		regular("learn-default/web/tcp/http", ruleset.Rule{tcp, ruleset.ReplyPortIs{Port: 8080}, ruleset.Update{
			Map: sticky, Key: []ruleset.Field{ruleset.OriginalSourceAddr}, Timeout: 3 * time.Hour,
			Value: []ruleset.Field{ruleset.ReplySourceAddr},
		}}),
		regular("services",
			ruleset.Rule{ruleset.VerdictOf{Key: frontendFields, Map: ruleset.Sticky}},
			ruleset.Rule{ruleset.SetPriority{Key: frontendFields, Map: ruleset.Services}},
			ruleset.Rule{ruleset.VerdictOf{Key: []ruleset.Field{ruleset.Priority}, Map: ruleset.Dispatch}},
			ruleset.Rule{ruleset.InSet{Key: []ruleset.Field{ruleset.DestinationAddr}, Set: ruleset.ClusterIPs}, goRefuse}),
		regular("learn", ruleset.Rule{tcp, ruleset.VerdictOf{Key: originalFields, Map: ruleset.Learn}}),
		{Name: "nat-prerouting", Hook: ruleset.Prerouting, Priority: ruleset.PriorityDNAT, Rules: []ruleset.Rule{jump("services")}},
		{Name: "nat-output", Hook: ruleset.Output, Priority: ruleset.PriorityDNAT, Rules: []ruleset.Rule{jump("services")}},
		{Name: "nat-postrouting", Hook: ruleset.Postrouting, Priority: ruleset.PrioritySNAT, Rules: []ruleset.Rule{
			{ruleset.PriorityBetween{First: 0xfd000000, Last: 0xfdffffff}, ruleset.ResetPriority{}},
			jump("learn"),
			{ruleset.HasDestinationNAT{}, ruleset.InSet{Key: hairpinFields, Set: ruleset.Hairpin}, ruleset.Masquerade{}},
			{
				ruleset.InSet{Key: []ruleset.Field{ruleset.OriginalDestinationAddr}, Set: ruleset.ClusterIPs},
				ruleset.NotInPrefix{Field: ruleset.OriginalSourceAddr, Prefix: addressesOf(family).cluster},
				ruleset.Masquerade{},
			},
		}},
		{Name: "nat-input", Hook: ruleset.Input, Priority: ruleset.PrioritySNAT, Rules: []ruleset.Rule{jump("learn")}},
	}
}

// filled is a set with elements.
type filled struct {
	set      ruleset.Set
	elements []ruleset.Element
}

// everySet holds a set of every kind, each hash table with a single element so that there is one way to list it.
func everySet(family model.Family) []filled {
	at := addressesOf(family)
	frontend := ruleset.Tuple{Addr: at.service, Proto: model.TCP, Port: 80}
	slot := frontend
	slot.Number = ruleset.SlotNumber(2)
	class := uint32(ruleset.BalanceClass(3))
	to := func(kind ruleset.VerdictKind, chain string) ruleset.Verdict {
		return ruleset.Verdict{Kind: kind, Chain: chain}
	}
	return []filled{
		{ruleset.Services, []ruleset.Element{{Key: frontend, Value: ruleset.Tuple{Number: class}}}},
		{ruleset.Dispatch, []ruleset.Element{
			{Key: ruleset.Tuple{Number: class}, Verdict: to(ruleset.Goto, "lb-3")},
			{Key: ruleset.Tuple{Number: uint32(ruleset.RefuseClass)}, Verdict: to(ruleset.Goto, "refuse")},
			{Key: ruleset.Tuple{Number: uint32(ruleset.DropClass)}, Verdict: to(ruleset.Drop, "")},
		}},
		{ruleset.Endpoints, []ruleset.Element{{Key: slot, Value: ruleset.Tuple{Addr: at.endpoint, Port: 8080}}}},
		{ruleset.Sticky, []ruleset.Element{{Key: frontend, Verdict: to(ruleset.Jump, "sticky-default/web/tcp/http")}}},
		{ruleset.Learn, []ruleset.Element{{Key: frontend, Verdict: to(ruleset.Jump, "learn-default/web/tcp/http")}}},
		{ruleset.ClusterIPs, []ruleset.Element{{Key: ruleset.Tuple{Addr: at.service}}}},
		{ruleset.Hairpin, []ruleset.Element{
			{Key: ruleset.Tuple{Addr: at.endpoint, Source: at.endpoint, Proto: model.SCTP, Port: 8080}},
		}},
		{sticky, []ruleset.Element{{Key: ruleset.Tuple{Addr: at.client}, Value: ruleset.Tuple{Addr: at.endpoint}}}},
	}
}

// operations gathers a batch.
type operations struct{ ruleset.Batch }

func (o *operations) do(verb ruleset.Verb, family model.Family, object ruleset.Object) *operations {
	o.Ops = append(o.Ops, ruleset.Op{Verb: verb, Family: family, Object: object})
	return o
}

func (o *operations) elements(verb ruleset.Verb, family model.Family, set ruleset.Set, elements ...ruleset.Element) *operations {
	return o.do(verb, family, ruleset.ElementsObject{Set: set, Elements: slices.Values(elements)})
}

// slots adds or deletes the elements of an IPv4 load-balancing table.
func (o *operations) slots(verb ruleset.Verb, number int) *operations {
	return o.do(verb, model.IPv4, ruleset.ElementsObject{Set: ruleset.Endpoints, Elements: slots(number)})
}

// everything adds a table with every set, chain, rule and element.
func everything(family model.Family) ruleset.Batch {
	var o operations
	o.do(ruleset.Add, family, ruleset.TableObject{})
	for _, filled := range everySet(family) {
		o.do(ruleset.Add, family, ruleset.SetObject{Set: filled.set})
	}
	for _, chain := range everyChain(family) {
		o.do(ruleset.Add, family, ruleset.ChainObject{Chain: chain})
	}
	for _, chain := range everyChain(family) {
		o.do(ruleset.Add, family, ruleset.RulesObject{Chain: chain})
	}
	for _, filled := range everySet(family) {
		o.elements(ruleset.Add, family, filled.set, filled.elements...)
	}
	return o.Batch
}

// emptyMaps adds a table with maps and nothing in them.
func emptyMaps(family model.Family, sets ...ruleset.Set) ruleset.Batch {
	var o operations
	o.do(ruleset.Add, family, ruleset.TableObject{})
	for _, set := range sets {
		o.do(ruleset.Add, family, ruleset.SetObject{Set: set})
	}
	return o.Batch
}

// slots gives the elements of a load-balancing table.
func slots(number int) iter.Seq[ruleset.Element] {
	at := addressesOf(model.IPv4)
	return func(yield func(ruleset.Element) bool) {
		for i := range number {
			key := ruleset.Tuple{Addr: at.service, Proto: model.TCP, Port: 80, Number: ruleset.SlotNumber(i)}
			if !yield(ruleset.Element{Key: key, Value: ruleset.Tuple{Addr: at.endpoint, Port: uint16(i)}}) {
				return
			}
		}
	}
}

func dial(t *testing.T, namespace *netnstest.Namespace, options Options) *Conn {
	t.Helper()
	var c *Conn
	var err error
	namespace.Do(func() { c, err = Dial(options) })
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func commit(t *testing.T, c *Conn, batch ruleset.Batch) {
	t.Helper()
	if err := c.Commit(t.Context(), batch); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func elementsOf(t *testing.T, c *Conn, family model.Family, set ruleset.Set) []ruleset.Element {
	t.Helper()
	elements, err := c.Elements(t.Context(), family, set)
	if err != nil {
		t.Fatalf("Elements: %v", err)
	}
	slices.SortFunc(elements, func(a, b ruleset.Element) int {
		return strings.Compare(a.Key.Text(set.Key), b.Key.Text(set.Key))
	})
	return elements
}
