//go:build linux

package nft

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

func TestErrorsNameTheOperationAndItsObject(t *testing.T) {
	have, other, absent := slot(1, "10.244.0.2"), slot(1, "10.244.0.3"), slot(7, "10.244.0.2")
	many := slices.Collect(slots(4000))
	endpoints := func(verb ruleset.Verb, elements ...ruleset.Element) *operations {
		return new(operations).elements(verb, model.IPv4, ruleset.Endpoints, elements...)
	}
	object := func(verb ruleset.Verb, object ruleset.Object) *operations {
		return new(operations).do(verb, model.IPv4, object)
	}
	rules := ruleset.Chain{Name: "refuse", Hook: ruleset.NoHook, Rules: []ruleset.Rule{
		{ruleset.Reject{}}, {ruleset.VerdictStatement{Verdict: ruleset.Verdict{Kind: ruleset.Jump, Chain: "absent"}}},
	}}
	for name, test := range map[string]struct {
		batch *operations
		errno unix.Errno
		want  string
	}{
		"an element that exists with another value": {
			endpoints(ruleset.Add, other), unix.EEXIST,
			"add element 10.96.0.1 . tcp . 80 . fd00:1 of map ip vicinity endpoints: file exists",
		},
		"one element among many": {
			endpoints(ruleset.Add, append(slices.Clone(many[2:]), other)...), unix.EEXIST,
			"add element 10.96.0.1 . tcp . 80 . fd00:1 of map ip vicinity endpoints: file exists",
		},
		"an absent element": {
			endpoints(ruleset.Delete, have, absent), unix.ENOENT,
			"delete element 10.96.0.1 . tcp . 80 . fd00:7 of map ip vicinity endpoints: no such file or directory",
		},
		"an element of an absent set": {
			object(ruleset.Add, ruleset.ElementsObject{
				Set:      ruleset.Set{Name: "absent", Key: []ruleset.Type{ruleset.TypeAddr}},
				Elements: slices.Values(elementsIn(model.IPv4, ruleset.ClusterIPs)),
			}), unix.ENOENT,
			"of set ip vicinity absent: no such file or directory",
		},
		"an absent set": {
			object(ruleset.Flush, ruleset.SetObject{Set: ruleset.Set{Name: "absent"}}), unix.ENOENT, "flush set ip vicinity absent: ",
		},
		"a set in use": {
			object(ruleset.Delete, ruleset.SetObject{Set: ruleset.Endpoints}), unix.EBUSY, "delete map ip vicinity endpoints: ",
		},
		"an absent chain": {
			object(ruleset.Delete, ruleset.ChainObject{Chain: ruleset.Chain{Name: "absent"}}), unix.ENOENT, "delete chain ip vicinity absent: ",
		},
		"a rule to an absent chain": {
			object(ruleset.Add, ruleset.RulesObject{Chain: rules}), unix.ENOENT, "add rule 2 of chain ip vicinity refuse: ",
		},
		"an absent table": {
			new(operations).do(ruleset.Delete, model.IPv6, ruleset.TableObject{}), unix.ENOENT, "delete table ip6 vicinity: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, netns.New(t), Options{})
			commit(t, c, everything(model.IPv4))
			commit(t, c, endpoints(ruleset.Add, have).Batch)
			err := c.Commit(t.Context(), test.batch.Batch)
			if !errors.Is(err, test.errno) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %v and a text with %q", err, test.errno, test.want)
			}
			if _, ok := errors.AsType[*ruleset.RejectedError](err); !ok {
				t.Errorf("got a %T, want a RejectedError", err)
			}
		})
	}
}

// The position of an element in its message and the number of rejected elements do not matter.
func TestEachRejectedElementIsNamed(t *testing.T) {
	c := dial(t, netns.New(t), Options{})
	commit(t, c, emptyMaps(model.IPv4, ruleset.Endpoints))
	elements := slices.Collect(slots(4000))
	var existing, want []ruleset.Element
	for i, element := range elements {
		if i == 0 || i == 1999 || i == 2000 || i == 3999 || i%700 == 5 {
			other := element
			other.Value.Port++
			existing, want = append(existing, other), append(want, element)
		}
	}
	commit(t, c, new(operations).elements(ruleset.Add, model.IPv4, ruleset.Endpoints, existing...).Batch)
	err := c.Commit(t.Context(), new(operations).elements(ruleset.Add, model.IPv4, ruleset.Endpoints, elements...).Batch)
	rejected, ok := errors.AsType[*ruleset.RejectedError](err)
	if !ok {
		t.Fatalf("got %v, want a RejectedError", err)
	}
	var got []ruleset.Element
	for _, rejection := range rejected.Rejections {
		if rejection.Element == nil || !errors.Is(rejection.Err, unix.EEXIST) {
			t.Fatalf("rejection %+v has no element, or another error than EEXIST", rejection)
		}
		got = append(got, *rejection.Element)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if remaining := elementsOf(t, c, model.IPv4, ruleset.Endpoints); len(remaining) != len(existing) {
		t.Errorf("%d elements exist, want the earlier %d", len(remaining), len(existing))
	}
}

func TestTheFirstOfManyErrorsAreListed(t *testing.T) {
	c := dial(t, netns.New(t), Options{})
	commit(t, c, emptyMaps(model.IPv4, ruleset.Endpoints))
	var o operations
	for i := range uint32(500) {
		o.elements(ruleset.Delete, model.IPv4, ruleset.Endpoints, slot(i, "10.244.0.2"))
	}
	err := c.Commit(t.Context(), o.Batch)
	if rejected, ok := errors.AsType[*ruleset.RejectedError](err); !ok || len(rejected.Rejections) != 500 {
		t.Fatalf("got %v, want a RejectedError with 500 rejections", err)
	}
	if want := "80 . fd00:2 of map ip vicinity endpoints: no such file or directory; and 497 more"; !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want it to end in %q", err, want)
	}
	commit(t, c, emptyMaps(model.IPv6, ruleset.Endpoints)) // and the connection works afterwards
}

func TestInvalidOperationsAreRejectedBeforeTheyAreSent(t *testing.T) {
	addrs4, addrs6 := addressesOf(model.IPv4), addressesOf(model.IPv6)
	rule := func(statements ...ruleset.Statement) ruleset.Object {
		return ruleset.RulesObject{Chain: ruleset.Chain{Name: "c", Rules: []ruleset.Rule{statements}}}
	}
	wideKey := []ruleset.Field{ruleset.SourceAddr, ruleset.DestinationAddr, ruleset.OriginalSourceAddr, ruleset.L4Proto, ruleset.Priority}
	elements := func(set ruleset.Set, element ruleset.Element) ruleset.Object {
		return ruleset.ElementsObject{Set: set, Elements: slices.Values([]ruleset.Element{element})}
	}
	for name, test := range map[string]struct {
		verb   ruleset.Verb
		object ruleset.Object
		want   error
	}{
		"an address of the other family": {
			ruleset.Add, elements(ruleset.ClusterIPs, ruleset.Element{Key: ruleset.Tuple{Addr: addrs4.service}}), errWrongFamily},
		"a range of the other family": {ruleset.Add, elements(ruleset.Sources, rangeElement(addrs4.allowedRange)), errWrongFamily},
		"a range without addresses": {
			ruleset.Add, elements(ruleset.Sources, ruleset.Element{Key: ruleset.Tuple{Addr: addrs6.service}}), errWrongFamily},
		"no address": {ruleset.Add, elements(ruleset.ClusterIPs, ruleset.Element{}), errWrongFamily},
		"no verdict": {ruleset.Add, elements(ruleset.Dispatch, ruleset.Element{}), errNoVerdict},
		"a prefix of the other family": {
			ruleset.Add, rule(ruleset.InPrefix{Field: ruleset.OriginalSourceAddr, Prefix: addrs4.cluster}), errWrongFamily},
		"a rule without a verdict": {ruleset.Add, rule(ruleset.VerdictStatement{}), errNoVerdict},
		"a key wider than the registers": {
			ruleset.Add, rule(ruleset.InSet{Key: append(wideKey, ruleset.SourceAddr), Set: ruleset.ClusterIPs}), errTooManyRegisters},
		"a set with too many fields": {ruleset.Add, ruleset.SetObject{Set: ruleset.Set{Name: "s", Key: make([]ruleset.Type, 6)}}, errSetTypes},
		"the flush of a table":       {ruleset.Flush, ruleset.TableObject{}, errNoSuchOperation},
		"the deletion of rules":      {ruleset.Delete, rule(), errNoSuchOperation},
		"no object":                  {ruleset.Add, nil, errNoSuchOperation},
	} {
		t.Run(name, func(t *testing.T) {
			good := ruleset.Element{Key: ruleset.Tuple{Addr: addrs6.service}}
			batch := new(operations).elements(ruleset.Add, model.IPv6, ruleset.ClusterIPs, good).
				do(test.verb, model.IPv6, test.object)
			if _, err := encode(batch.Batch, false, 1, nil, false); !errors.Is(err, test.want) {
				t.Errorf("encoding gave %v, want %v", err, test.want)
			}
		})
	}
}

func TestAnInvalidStatementIsRejectedWithItsReason(t *testing.T) {
	for name, test := range map[string]struct {
		statement ruleset.Statement
		want      string
	}{
		"a link without a name":    {ruleset.NotFromInterface{}, `"" is not the name of a link`},
		"an empty prefix of names": {ruleset.NotFromInterface{Prefix: true}, `"" is not the name of a link`},
		"a link with a name of 16 letters": {
			ruleset.NotFromInterface{Name: "sixteen--letters"}, `"sixteen--letters" is not the name of a link`},
		"the type of a field of conntrack": {ruleset.IsLocal{Field: ruleset.OriginalSourceAddr}, "field "},
		"an unknown statement":             {struct{ ruleset.Statement }{}, "unknown statement struct "},
		"no statement":                     {nil, "unknown statement <nil>"},
		"no prefix": {
			ruleset.InPrefix{Field: ruleset.SourceAddr}, "prefix invalid Prefix: address family differs from the table's"},
	} {
		if _, err := expressionsOf(model.IPv4, test.statement); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s gave %v, want it to begin with %q", name, err, test.want)
		}
	}
}
