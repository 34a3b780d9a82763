package ruleset_test

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func endpoints(numbers ...int) []netip.AddrPort {
	list := make([]netip.AddrPort, len(numbers))
	for i, number := range numbers {
		list[i] = netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", number/200, number%200+1))
	}
	return list
}

var compareAddrPorts = cmpopts.EquateComparable(netip.AddrPort{})

func TestStableSlots(t *testing.T) {
	for name, tt := range map[string]struct{ have, want, slots []int }{
		"a new Service takes its endpoints in order":              {nil, []int{1, 2, 3}, []int{1, 2, 3}},
		"an added endpoint takes a slot at the end":               {[]int{2, 3}, []int{1, 2, 3}, []int{2, 3, 1}},
		"the last endpoint moves into the hole of a removed one":  {[]int{1, 2, 3, 4}, []int{1, 3, 4}, []int{1, 4, 3}},
		"removing the last endpoint moves none":                   {[]int{1, 2, 3}, []int{1, 2}, []int{1, 2}},
		"a replacement takes the slot of the one it replaces":     {[]int{1, 2, 3}, []int{1, 9, 3}, []int{1, 9, 3}},
		"the same endpoints in another order stay where they are": {[]int{3, 1, 2}, []int{1, 2, 3}, []int{3, 1, 2}},
		"a Service that loses all its endpoints has no slots":     {[]int{1, 2}, nil, nil},
		"two removed, one added: it fills a hole, the last moves": {[]int{1, 2, 3, 4}, []int{3, 4, 5}, []int{4, 5, 3}},
		"new endpoints are in the order of their addresses":       {[]int{1, 2}, []int{5, 4, 3}, []int{3, 4, 5}},
		"an endpoint that owns several slots keeps them":          {[]int{1, 2, 1}, []int{1, 1, 2}, []int{1, 2, 1}},
		"an endpoint gets one more slot":                          {[]int{1, 2, 1}, []int{1, 1, 1, 2}, []int{1, 2, 1, 1}},
		"an endpoint gives its last slot to another":              {[]int{1, 2, 1, 1}, []int{1, 1, 2, 2}, []int{1, 2, 1, 2}},
		"an endpoint loses a slot, the last moves into the hole":  {[]int{1, 1, 2, 3}, []int{1, 2, 3}, []int{1, 3, 2}},
		"an endpoint loses its last slot: nothing moves":          {[]int{1, 2, 1}, []int{1, 2}, []int{1, 2}},
		"an endpoint moves into all its holes":                    {[]int{1, 2, 3, 4, 4}, []int{3, 4, 4}, []int{4, 4, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ruleset.StableSlots(endpoints(tt.have...), endpoints(tt.want...))
			if diff := cmp.Diff(endpoints(tt.slots...), got, compareAddrPorts); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

// multiset returns a random number of endpoints, some of them several times.
func multiset(random *rand.Rand) []netip.AddrPort {
	numbers := make([]int, random.IntN(20))
	for i := range numbers {
		numbers[i] = random.IntN(1 + random.IntN(12))
	}
	return endpoints(numbers...)
}

// fewestChanges returns the minimum number of slots that must change: all but those that can remain. An endpoint can
// keep as many slots as it has below the new end, up to the number that it should have.
func fewestChanges(have, want []netip.AddrPort) int {
	has, wanted := countEach(have[:min(len(have), len(want))]), countEach(want)
	changes := len(want)
	for endpoint, count := range wanted {
		changes -= min(count, has[endpoint])
	}
	return changes
}

func countEach(list []netip.AddrPort) map[netip.AddrPort]int {
	counts := map[netip.AddrPort]int{}
	for _, endpoint := range list {
		counts[endpoint]++
	}
	return counts
}

func countChanges(have, got []netip.AddrPort) int {
	count := 0
	for slot, endpoint := range got {
		if slot >= len(have) || have[slot] != endpoint {
			count++
		}
	}
	return count
}

// TestStableSlotsChangeAsLittleAsPossible, in long histories of endpoints that own any number of slots.
func TestStableSlotsChangeAsLittleAsPossible(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	have := endpoints()
	for range 5000 {
		want := multiset(random)
		got := ruleset.StableSlots(have, want)
		if !maps.Equal(countEach(want), countEach(got)) {
			t.Fatalf("%v became %v, want exactly the endpoints %v", have, got, want)
		}
		if least := fewestChanges(have, want); countChanges(have, got) != least {
			t.Fatalf("%v became %v: %d slots changed, want %d", have, got, countChanges(have, got), least)
		}
		shuffled := func(list []netip.AddrPort) []netip.AddrPort {
			list = slices.Clone(list)
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			return list
		}
		if again := ruleset.StableSlots(have, shuffled(want)); !slices.Equal(got, again) {
			t.Fatalf("%v became %v, but %v with the same endpoints in another order", have, got, again)
		}
		if again := ruleset.StableSlots(got, shuffled(got)); !slices.Equal(got, again) {
			t.Fatalf("%v became %v without a change", got, again)
		}
		have = got
	}
}

// TestNoArrangementChangesFewerSlots than the minimum of the test above: all of them are tried.
func TestNoArrangementChangesFewerSlots(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		have, want := multiset(random), multiset(random)
		want = want[:min(len(want), 6)]
		least := len(want)
		for order := range permutations(want) {
			least = min(least, countChanges(have, order))
		}
		if got := fewestChanges(have, want); got != least {
			t.Fatalf("from %v to %v: the minimum is %d changes, but %d suffice", have, want, got, least)
		}
	}
}

func permutations(list []netip.AddrPort) iter.Seq[[]netip.AddrPort] {
	return func(yield func([]netip.AddrPort) bool) { permute(slices.Clone(list), 0, yield) }
}

func permute(list []netip.AddrPort, from int, yield func([]netip.AddrPort) bool) bool {
	if from == len(list) {
		return yield(list)
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		if !permute(list, from+1, yield) {
			return false
		}
		list[from], list[i] = list[i], list[from]
	}
	return true
}
