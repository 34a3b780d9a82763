package ruleset_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// sources is a list of source ranges.
var sources = ruleset.SourceList("ab")

// source is an element of it.
func source(prefix string) ruleset.Element {
	from := netip.MustParsePrefix(prefix)
	return ruleset.Element{Key: ruleset.Tuple{Source: from.Addr(), Bits: uint8(from.Bits())}}
}

// TestRangesOfOneListNeverOverlap, or the kernel refuses the batch.
func TestRangesOfOneListNeverOverlap(t *testing.T) {
	add := func(ranges ...string) ruleset.Op {
		var elements []ruleset.Element
		for _, text := range ranges {
			elements = append(elements, source(text))
		}
		return elementOp(ruleset.Add, sources, elements...)
	}
	for name, test := range map[string]struct {
		ops     []ruleset.Op
		refused string // both ranges, if it is refused
	}{
		"a range beside it":           {[]ruleset.Op{add("192.0.2.128/25")}, ""},
		"the same range once more":    {[]ruleset.Op{add("192.0.2.0/25")}, ""},
		"a range inside it":           {[]ruleset.Op{add("192.0.2.64/26")}, "192.0.2.64/26 overlaps 192.0.2.0/25"},
		"a range that begins with it": {[]ruleset.Op{add("192.0.2.0/24")}, "192.0.2.0/25 overlaps 192.0.2.0/24"},
		"a range that encloses it":    {[]ruleset.Op{add("192.0.0.0/16")}, "192.0.2.0/25 overlaps 192.0.0.0/16"},
		"an address inside it":        {[]ruleset.Op{add("192.0.2.7/32")}, "192.0.2.7 overlaps 192.0.2.0/25"},
		"two of one operation":        {[]ruleset.Op{add("10.0.0.0/9", "10.1.0.0/16")}, "10.1.0.0/16 overlaps 10.0.0.0/9"},
		"a range inside one that is deleted first": {[]ruleset.Op{
			elementOp(ruleset.Delete, sources, source("192.0.2.0/25")), add("192.0.2.64/26"),
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tables := emptyTable(t)
			mustApply(t, tables, ruleset.Batch{Ops: []ruleset.Op{setOp(ruleset.Add, sources), add("192.0.2.0/25")}})
			before := text(t, tables)
			err := tables.Apply(ruleset.Batch{Ops: test.ops})
			if test.refused == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, ruleset.ErrExist) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("error %v, want %v that says %q", err, ruleset.ErrExist, test.refused)
			}
			if diff := cmp.Diff(before, text(t, tables)); diff != "" {
				t.Errorf("a batch that failed changed the tables (-before +after):\n%s", diff)
			}
		})
	}
}

// restricted returns a Service with load balancer addresses, each on several ports, and who may dial them.
func restricted(number, addresses, ports int, ranges ...netip.Prefix) ruleset.Service {
	name := model.ObjectName{Namespace: "default", Name: fmt.Sprint("restricted-", number)}
	service := ruleset.Service{Name: name}
	for at := range ports {
		port := ruleset.Port{
			ID:        model.PortID{Service: name, Port: fmt.Sprint("p", at), Protocol: model.TCP, Family: model.IPv4},
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)}),
			Cluster:   endpoints(1), Sources: ranges,
		}
		for address := range addresses {
			addr := netip.AddrFrom4([4]byte{203, byte(number), byte(address >> 8), byte(address)})
			port.Frontends = append(port.Frontends, ruleset.Frontend{
				Frontend: model.Frontend{Addr: addr, Protocol: model.TCP, Port: uint16(8000 + at)},
				Class:    ruleset.BalanceClass(1), External: true, Restricted: true,
			})
		}
		service.Ports = append(service.Ports, port)
	}
	return service
}

// manyRanges are prefixes that do not overlap.
func manyRanges(first, count int) []netip.Prefix {
	ranges := make([]netip.Prefix, count)
	for i := range ranges {
		at := first + i
		ranges[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(at >> 8), byte(at), 0}), 24)
	}
	return ranges
}

// TestAListOfRangesIsThereOnceForAllThatHaveIt: what a Service costs is the sum of its ranges and of its frontends.
func TestAListOfRangesIsThereOnceForAllThatHaveIt(t *testing.T) {
	const ranges, addresses, ports = 2000, 20, 5
	r := start(t)
	plan := r.change(t, restricted(1, addresses, ports, manyRanges(0, ranges)...))
	// Of each frontend: its class, its slot, its list, and that it is external.
	if got, most := count(plan, ruleset.Add), ranges+4*addresses*ports+10; got > most {
		t.Errorf("%d ranges and %d frontends take %d elements, want %d at most", ranges, addresses*ports, got, most)
	}
	plan = r.change(t, restricted(2, addresses, ports, manyRanges(0, ranges)...))
	if got, most := count(plan, ruleset.Add), 4*addresses*ports+10; got > most {
		t.Errorf("a second Service with the same ranges takes %d elements, want %d at most", got, most)
	}
	sweepAll(t, &r.Tables, r.mirror)
	if lists := listsIn(&r.Tables); len(lists) != 1 {
		t.Errorf("two Services with the same ranges have %d lists", len(lists))
	}
	plan = r.change(t, restricted(2, addresses, ports, manyRanges(1, ranges)...))
	if got, most := count(plan, ruleset.Add), ranges+addresses*ports+10; got > most {
		t.Errorf("another list takes %d elements, want %d at most", got, most)
	}
	if got, most := count(plan, ruleset.Delete), addresses*ports; got > most {
		t.Errorf("another list deletes %d elements one by one, want %d at most", got, most)
	}
	r.change(t, ruleset.Service{Name: restricted(1, 1, 1).Name}, ruleset.Service{Name: restricted(2, 1, 1).Name})
	sweepAll(t, &r.Tables, r.mirror)
	if lists := listsIn(&r.Tables); len(lists) != 0 {
		t.Errorf("%d lists outlive their Services", len(lists))
	}
}

func count(plan *ruleset.Plan, verb ruleset.Verb) int {
	return plan.Prepare.Count(model.IPv4, verb) + plan.Batch.Count(model.IPv4, verb)
}

// isList reports whether a set is a list of source ranges.
func isList(name string) bool { return strings.HasPrefix(name, "sources-") }

func listsIn(tables *ruleset.Tables) []string {
	return slices.DeleteFunc(tables.Objects(model.IPv4).Sets, func(name string) bool { return !isList(name) })
}

// TestTwoChainsNeverShareAClass, even if both want the same one.
func TestTwoChainsNeverShareAClass(t *testing.T) {
	free := func(ruleset.Class) string { return "" }
	wanted := ruleset.NumberedClass(0xf5000000, "one", free)
	classes := map[ruleset.Class]string{wanted: "another", wanted + 1: "a third"}
	for range 2 {
		class := ruleset.NumberedClass(0xf5000000, "one", func(class ruleset.Class) string { return classes[class] })
		if class != wanted+2 {
			t.Fatalf("the class is %x, want %x: the next that leads to no other chain, and again the same", class, wanted+2)
		}
		classes[class] = "one"
	}
}
