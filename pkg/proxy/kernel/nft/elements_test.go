//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

var comparableElements = cmpopts.EquateComparable(ruleset.Element{}, ruleset.Tuple{})

func TestElementsAreReadBackAsTheyWereWritten(t *testing.T) {
	shapes := []filled{
		{ruleset.Set{Name: "ports", Key: []ruleset.Type{ruleset.TypePort}}, []ruleset.Element{{Key: ruleset.Tuple{Port: 443}}}},
		{ruleset.Set{Name: "protocols", Key: []ruleset.Type{ruleset.TypeProto}, Value: []ruleset.Type{ruleset.TypeClass}},
			[]ruleset.Element{{Key: ruleset.Tuple{Proto: model.UDP}, Value: ruleset.Tuple{Number: 0x01020304}}}},
		{ruleset.Set{Name: "numbers", Key: []ruleset.Type{ruleset.TypeClass}, Value: []ruleset.Type{ruleset.TypePort}},
			[]ruleset.Element{{Key: ruleset.Tuple{Number: 5}, Value: ruleset.Tuple{Port: 80}}}},
	}
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			c := dial(t, netns.New(t), Options{})
			commit(t, c, everything(family))
			for _, shape := range shapes {
				var o operations
				o.do(ruleset.Add, family, ruleset.SetObject{Set: shape.set}).elements(ruleset.Add, family, shape.set, shape.elements...)
				commit(t, c, o.Batch)
			}
			for _, filled := range append(everySet(family), shapes...) {
				got := elementsOf(t, c, family, filled.set)
				for i := range filled.elements {
					filled.elements[i].Comment = "" // for display, and not read back
				}
				sorted := func(a, b ruleset.Element) bool { return a.Key.Number < b.Key.Number }
				if diff := cmp.Diff(filled.elements, got, comparableElements, cmpopts.SortSlices(sorted)); diff != "" {
					t.Errorf("%s reads back differently (-want +got):\n%s", filled.set.Name, diff)
				}
			}
		})
	}
}

func TestReadingAnAbsentSetNamesIt(t *testing.T) {
	c := dial(t, netns.New(t), Options{})
	_, err := c.Elements(t.Context(), model.IPv4, ruleset.Endpoints)
	want := "read map ip vicinity endpoints: no such file or directory"
	if !errors.Is(err, unix.ENOENT) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReplacingAnElementInOneBatch(t *testing.T) {
	addrs := addressesOf(model.IPv4)
	client := func(endpoint string) ruleset.Element {
		return ruleset.Element{Key: ruleset.Tuple{Addr: addrs.client}, Value: slot(0, endpoint).Value}
	}
	key, value := []ruleset.Type{ruleset.TypeAddr}, []ruleset.Type{ruleset.TypeAddr, ruleset.TypePort}
	for _, set := range []ruleset.Set{
		{Name: "static", Key: key, Value: value},
		{Name: "learned", Key: key, Value: value, Dynamic: true},
	} {
		have, want := client("10.244.0.2"), client("10.244.0.3")
		for name, test := range map[string]struct {
			before []ruleset.Element
			batch  *operations
			after  []ruleset.Element
		}{
			"adding an identical one": {
				[]ruleset.Element{have}, new(operations).elements(ruleset.Add, model.IPv4, set, have), []ruleset.Element{have}},
			"deleting and adding another value": {
				[]ruleset.Element{have},
				new(operations).elements(ruleset.Delete, model.IPv4, set, have).elements(ruleset.Add, model.IPv4, set, want),
				[]ruleset.Element{want}},
			"adding and deleting an existing one": {
				[]ruleset.Element{have},
				new(operations).elements(ruleset.Add, model.IPv4, set, have).elements(ruleset.Delete, model.IPv4, set, have), nil},
			"adding and deleting an absent one": {
				nil, new(operations).elements(ruleset.Add, model.IPv4, set, have).elements(ruleset.Delete, model.IPv4, set, have), nil},
		} {
			t.Run(set.Name+": "+name, func(t *testing.T) {
				c := dial(t, netns.New(t), Options{})
				commit(t, c, emptyMaps(model.IPv4, set))
				commit(t, c, new(operations).elements(ruleset.Add, model.IPv4, set, test.before...).Batch)
				commit(t, c, test.batch.Batch)
				if diff := cmp.Diff(test.after, elementsOf(t, c, model.IPv4, set), comparableElements, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestObjectsAreOnlyThoseOfOurTable(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	if got, err := c.Objects(t.Context(), model.IPv4); err != nil || !cmp.Equal(got, ruleset.Objects{}) {
		t.Errorf("without a table: got %+v, %v", got, err)
	}
	namespace.Load("table ip other { set s { type ipv4_addr; }\n chain c { ip saddr { 1.2.3.4, 1.2.3.5 } drop; }\n }\n" +
		"table ip6 vicinity { set other-family { type ipv6_addr; }\n }\n" +
		"table ip vicinity { quota no-counter { 1 mbytes }\n chain foreign { ip saddr { 1.2.3.4, 1.2.3.5 } drop; }\n }\n")
	commit(t, c, everything(model.IPv4))

	got, err := c.Objects(t.Context(), model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	want := ruleset.Objects{Table: true, Chains: []string{"foreign"}, Counters: []string{"refused"}}
	for _, chain := range everyChain(model.IPv4) {
		want.Chains = append(want.Chains, chain.Name)
	}
	for _, filled := range everySet(model.IPv4) {
		want.Sets = append(want.Sets, filled.set.Name)
		if _, restored := ruleset.RestoredSet(filled.set.Name); restored {
			want.Add(filled.set.Name, filled.elements)
		}
	}
	slices.Sort(want.Chains)
	slices.Sort(want.Sets)
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Another process constantly changes another table, which interrupts every dump.
func TestObjectsAreFoundInABusyRuleset(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	commit(t, c, everything(model.IPv4))
	quiet, err := c.Objects(t.Context(), model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&script, "add chain ip busy chain-%d\n", i)
	}
	namespace.Load("add table ip busy\nadd table ip busy-too\n" + script.String())
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		other := dial(t, namespace, Options{})
		table := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: model.IPv6, Object: ruleset.TableObject{}}}}
		for ctx.Err() == nil {
			if err := other.Commit(t.Context(), table); err != nil {
				t.Errorf("the other process: %v", err)
				return
			}
			table.Ops[0].Verb = ruleset.Add + ruleset.Delete - table.Ops[0].Verb
		}
	})
	defer busy.Wait()
	defer cancel()
	got, err := c.Objects(t.Context(), model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(quiet, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-quiet +busy):\n%s", diff)
	}
}
