//go:build linux

package nft

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// operations collects a batch.
type operations struct{ ruleset.Batch }

func (o *operations) do(verb ruleset.Verb, family model.Family, object ruleset.Object) *operations {
	o.Ops = append(o.Ops, ruleset.Op{Verb: verb, Family: family, Object: object})
	return o
}

func (o *operations) elements(verb ruleset.Verb, family model.Family, set ruleset.Set, elements ...ruleset.Element) *operations {
	return o.do(verb, family, ruleset.ElementsObject{Set: set, Elements: slices.Values(elements)})
}

// slots adds or deletes the elements of an IPv4 load-balancing table.
func (o *operations) slots(verb ruleset.Verb, count int) *operations {
	return o.do(verb, model.IPv4, ruleset.ElementsObject{Set: ruleset.Endpoints, Elements: slots(count)})
}

// everything adds a table with every set, chain, rule and element.
func everything(family model.Family) ruleset.Batch {
	var o operations
	o.do(ruleset.Add, family, ruleset.TableObject{})
	o.do(ruleset.Add, family, ruleset.CounterObject{Name: "refused"})
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

// slots returns the elements of a load-balancing table.
func slots(count int) iter.Seq[ruleset.Element] {
	addrs := addressesOf(model.IPv4)
	return func(yield func(ruleset.Element) bool) {
		for i := range count {
			key := ruleset.Tuple{Addr: addrs.service, Proto: model.TCP, Port: 80, Number: ruleset.ClusterSlot + uint32(i)}
			if !yield(ruleset.Element{Key: key, Value: ruleset.Tuple{Addr: addrs.endpoint, Port: uint16(i)}}) {
				return
			}
		}
	}
}

func dial(t *testing.T, namespace *netns.Namespace, options Options) *Conn {
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
