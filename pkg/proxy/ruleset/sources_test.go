package ruleset_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// everySources are the ranges of the Service everyKind in the tables, in short form: a prefix of 25 bits is two of 26.
var everySources = map[model.Family][]string{
	model.IPv4: {
		"sources 192.0.2.0 192.0.2.63", "sources 192.0.2.200 192.0.2.200", "sources 192.0.2.64 192.0.2.127",
	},
	model.IPv6: {"sources 2001:db8:9:: 2001:db8:9:ffff:ffff:ffff:ffff:ffff"},
}

// restricted returns a Service with load balancer addresses, each on several ports, and the clients that may dial them.
func restricted(number, addresses, ports int, ranges ...netip.Prefix) ruleset.Service {
	name := model.ObjectName{Namespace: "default", Name: fmt.Sprint("restricted-", number)}
	service := ruleset.Service{Name: name}
	for i := range ports {
		port := ruleset.Port{
			ID:        model.PortID{Service: name, Port: fmt.Sprint("p", i), Protocol: model.TCP, Family: model.IPv4},
			ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)}),
			Cluster:   endpoints(1), Sources: ranges,
		}
		for address := range addresses {
			addr := netip.AddrFrom4([4]byte{203, byte(number), byte(address >> 8), byte(address)})
			port.Frontends = append(port.Frontends, ruleset.Frontend{
				Frontend: model.Frontend{Addr: addr, Protocol: model.TCP, Port: uint16(8000 + i)},
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
		number := first + i
		ranges[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(number >> 8), byte(number), 0}), 24)
	}
	return ranges
}

// TestASourceListIsStoredOnce: what a Service costs is the sum of its ranges and of its frontends.
func TestASourceListIsStoredOnce(t *testing.T) {
	const ranges, addresses, ports = 2000, 20, 5
	r := start(t)
	plan := r.change(t, restricted(1, addresses, ports, manyRanges(0, ranges)...))
	// Of each frontend: its class, its slot, its list, and that it is external.
	if got, limit := count(plan, ruleset.Add), ranges+4*addresses*ports+10; got > limit {
		t.Errorf("%d ranges and %d frontends take %d elements, want %d at most", ranges, addresses*ports, got, limit)
	}
	plan = r.change(t, restricted(2, addresses, ports, manyRanges(0, ranges)...))
	if got, limit := count(plan, ruleset.Add), 4*addresses*ports+10; got > limit {
		t.Errorf("a second Service with the same ranges takes %d elements, want %d at most", got, limit)
	}
	cleanUpAll(t, &r.Tables, r.mirror)
	if got := len(sourcesIn(t, r, model.IPv4)); got != ranges {
		t.Errorf("two Services with the same %d ranges have %d elements", ranges, got)
	}
	plan = r.change(t, restricted(2, addresses, ports, manyRanges(1, ranges)...))
	if got, limit := count(plan, ruleset.Add), ranges+addresses*ports+10; got > limit {
		t.Errorf("another list takes %d elements, want %d at most", got, limit)
	}
	if got, limit := count(plan, ruleset.Delete), addresses*ports; got > limit {
		t.Errorf("another list deletes %d elements before the cleanup, want %d at most", got, limit)
	}
	r.change(t, ruleset.Service{Name: restricted(1, 1, 1).Name}, ruleset.Service{Name: restricted(2, 1, 1).Name})
	cleanUpAll(t, &r.Tables, r.mirror)
	if remaining := sourcesIn(t, r, model.IPv4); len(remaining) != 0 {
		t.Errorf("%d ranges remain after their Services were deleted", len(remaining))
	}
}

func count(plan *ruleset.Plan, verb ruleset.Verb) int {
	return plan.Prerequisites.Count(model.IPv4, verb) + plan.Batch.Count(model.IPv4, verb)
}

// restrictedIn returns a Service like restricted's in a given family.
func restrictedIn(family model.Family, number int, ranges ...netip.Prefix) ruleset.Service {
	service := restricted(number, 1, 1, ranges...)
	service.Ports[0].ID.Family = family
	return service
}

func sourcesIn(t testing.TB, r *rig, family model.Family) []ruleset.Element {
	t.Helper()
	elements, err := r.Elements(family, ruleset.Sources)
	if err != nil {
		t.Fatal(err)
	}
	return elements
}

// sourceRangesIn returns the chain that checks ranges.
func sourceRangesIn(r *rig, family model.Family) ruleset.Chain {
	chains := r.Chains(family)
	return chains[slices.IndexFunc(chains, func(chain ruleset.Chain) bool { return chain.Name == "source-ranges" })]
}

// TestListsAddNothingThatTheKernelEvaluates when another Service's change adds a verdict or a rule: the more verdicts
// there are, the longer it takes, and with many chains and sets every change is slower.
func TestListsAddNothingThatTheKernelEvaluates(t *testing.T) {
	lists := func(count int) []ruleset.Service {
		var services []ruleset.Service
		for number := range count {
			services = append(services, restricted(number, 1, 1, manyRanges(number, 3)...))
		}
		return services
	}
	objectCounts := func(tables *ruleset.Tables) map[string]int {
		verdicts, err := tables.Elements(model.IPv4, ruleset.Dispatch)
		if err != nil {
			t.Fatal(err)
		}
		objects, rules := tables.Objects(model.IPv4), 0
		for _, chain := range tables.Chains(model.IPv4) {
			rules += len(chain.Rules)
		}
		return map[string]int{"verdicts": len(verdicts), "chains": len(objects.Chains), "sets": len(objects.Sets), "rules": rules}
	}
	one, many := start(t, lists(1)...), start(t, lists(100)...)
	if diff := cmp.Diff(objectCounts(&one.Tables), objectCounts(&many.Tables)); diff != "" {
		t.Errorf("number of objects (-one list +hundred lists):\n%s", diff)
	}
	plan := one.change(t, lists(100)[50])
	for _, op := range slices.Concat(plan.Prerequisites.Ops, plan.Batch.Ops) {
		if object, ok := op.Object.(ruleset.ElementsObject); !ok || object.Set.Name == ruleset.Dispatch.Name {
			t.Errorf("another list adds %v, want only elements and no verdict", planned(plan))
		}
	}
}

// TestAClientIsFoundIfAndOnlyIfItsAddressIsInARange applies the rules in their order, as to packets.
func TestAClientIsFoundIfAndOnlyIfItsAddressIsInARange(t *testing.T) {
	random := rand.New(rand.NewPCG(29, 7))
	for _, family := range model.Families {
		for round := range 300 {
			ranges := randomRanges(random, family, 1+round%5)
			r := start(t, restrictedIn(family, 1, ranges...))
			stored := map[ruleset.Tuple]bool{}
			for _, element := range sourcesIn(t, r, family) {
				element.Key.Number = 0
				stored[element.Key] = true
			}
			chain := sourceRangesIn(r, family)
			for _, client := range clientsAround(random, ranges) {
				want := slices.ContainsFunc(ranges, func(one netip.Prefix) bool { return one.Contains(client) })
				if got := passes(chain, client, stored); got != want {
					t.Fatalf("%s passes %v: %v, want %v; the tables have %v", client, ranges, got, want, stored)
				}
			}
		}
	}
}

// passes evaluates the rules as the kernel does.
func passes(chain ruleset.Chain, client netip.Addr, stored map[ruleset.Tuple]bool) bool {
	for _, rule := range chain.Rules {
		from, isRange := rule[0].(ruleset.FromRange)
		if !isRange {
			return false // it is dropped
		}
		first := netip.PrefixFrom(client, from.Bits).Masked().Addr()
		if stored[ruleset.Tuple{Addr: first, Source: lastOf(netip.PrefixFrom(first, from.Bits))}] {
			return true
		}
	}
	return true // the chain ends
}

// randomRanges are prefixes of all lengths that do not overlap.
func randomRanges(random *rand.Rand, family model.Family, count int) []netip.Prefix {
	var ranges []netip.Prefix
	for len(ranges) < count {
		addr := randomAddr(random, family)
		one := netip.PrefixFrom(addr, 1+random.IntN(addr.BitLen())).Masked()
		if !slices.ContainsFunc(ranges, one.Overlaps) {
			ranges = append(ranges, one)
		} else if random.IntN(10) == 0 {
			return ranges // half of the addresses are taken
		}
	}
	return ranges
}

func randomAddr(random *rand.Rand, family model.Family) netip.Addr {
	var bytes [16]byte
	binary.BigEndian.PutUint64(bytes[:], random.Uint64())
	binary.BigEndian.PutUint64(bytes[8:], random.Uint64())
	if family == model.IPv4 {
		return netip.AddrFrom4([4]byte(bytes[:4]))
	}
	bytes[0] = 0x20 // and not an IPv4-mapped address
	return netip.AddrFrom16(bytes)
}

// clientsAround are addresses at the edges of ranges, within them, and anywhere.
func clientsAround(random *rand.Rand, ranges []netip.Prefix) []netip.Addr {
	var clients []netip.Addr
	for _, one := range ranges {
		first, last := one.Addr(), lastOf(one)
		anywhere := randomAddr(random, model.FamilyOf(first))
		clients = append(clients, first, first.Prev(), first.Next(), last, last.Prev(), last.Next(), anywhere)
	}
	return slices.DeleteFunc(clients, func(client netip.Addr) bool { return !client.IsValid() })
}

func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// TestAPacketNeedsFewLookupsForItsRange, whatever lengths prefixes have; and multiples of high powers of two come
// first, so that rarer lengths in one Service cost the clients of others nothing.
func TestAPacketNeedsFewLookupsForItsRange(t *testing.T) {
	for family, want := range map[model.Family][]int{
		model.IPv4: {32, 16, 24, 8, 28, 20, 12, 4, 30, 26, 22, 18, 14, 10, 6, 2},
		model.IPv6: {128, 64, 96, 32, 112, 80, 48, 16, 120, 104, 88, 72, 56, 40, 24, 8},
	} {
		highest := lastOf(netip.PrefixFrom(model.AnyAddr(family), 0))
		var services []ruleset.Service
		for number := range highest.BitLen() {
			services = append(services, restrictedIn(family, number, netip.PrefixFrom(highest, number+1).Masked()))
		}
		var got []int
		for _, rule := range sourceRangesIn(start(t, services...), family).Rules {
			if from, isRange := rule[0].(ruleset.FromRange); isRange {
				got = append(got, from.Bits)
			}
		}
		if most := highest.BitLen() / 2; len(got) != most || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s: a packet needs %d lookups, for the lengths %v, want %d that start with %v", family, len(got), got, most, want)
		}
	}
}

// TestAListKeepsItsNumberUntilItsRangesAreCleanedUp: otherwise another list could get the number together with these
// ranges.
func TestAListKeepsItsNumberUntilItsRangesAreCleanedUp(t *testing.T) {
	r := start(t, restricted(1, 1, 1, manyRanges(0, 3)...))
	key := r.mirror.ListNumbers()
	if len(key) != 1 {
		t.Fatalf("one list has the numbers %v", key)
	}
	r.change(t, ruleset.Service{Name: restricted(1, 1, 1).Name})
	if got := r.mirror.ListNumbers(); !slices.Equal(got, key) {
		t.Errorf("before the cleanup the numbers are %v, want still %v", got, key)
	}
	if r.change(t, restricted(1, 1, 1, manyRanges(0, 3)...)); !slices.Equal(r.mirror.ListNumbers(), key) {
		t.Errorf("the list is added again with the numbers %v, want %v", r.mirror.ListNumbers(), key)
	}
	r.cleanUp(t)
	if got := len(sourcesIn(t, r, model.IPv4)); got != 3 {
		t.Errorf("after the list was added again and a cleanup there are %d ranges, want 3", got)
	}
	r.change(t, ruleset.Service{Name: restricted(1, 1, 1).Name})
	r.cleanUp(t)
	if got := r.mirror.ListNumbers(); len(got) != 0 {
		t.Errorf("the numbers %v are still in use", got)
	}
}

// TestTwoNamesNeverShareAClass, even if both determine the same one.
func TestTwoNamesNeverShareAClass(t *testing.T) {
	free := func(ruleset.Class) string { return "" }
	wanted := ruleset.NumberedClass(0xf5000000, "one", free)
	classes := map[ruleset.Class]string{wanted: "another", wanted + 1: "a third"}
	for range 2 {
		class := ruleset.NumberedClass(0xf5000000, "one", func(class ruleset.Class) string { return classes[class] })
		if class != wanted+2 {
			t.Fatalf("the class is %x, want %x: the next free one, and the same again", class, wanted+2)
		}
		classes[class] = "one"
	}
}
