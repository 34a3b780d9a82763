package ruleset_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

func endpoints(numbers ...int) []netip.AddrPort {
	list := make([]netip.AddrPort, len(numbers))
	for i, number := range numbers {
		list[i] = netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", number/200, number%200+1))
	}
	return list
}

var compareAddrPorts = cmpopts.EquateComparable(netip.AddrPort{})

func TestReslot(t *testing.T) {
	for name, tt := range map[string]struct{ have, want, slots []int }{
		"a new Service takes its endpoints in order":                    {nil, []int{1, 2, 3}, []int{1, 2, 3}},
		"an endpoint that arrives takes a slot at the end":              {[]int{2, 3}, []int{1, 2, 3}, []int{2, 3, 1}},
		"the last endpoint moves into the hole that another leaves":     {[]int{1, 2, 3, 4}, []int{1, 3, 4}, []int{1, 4, 3}},
		"the last endpoint that leaves moves nobody":                    {[]int{1, 2, 3}, []int{1, 2}, []int{1, 2}},
		"a replacement takes the slot of the one it replaces":           {[]int{1, 2, 3}, []int{1, 9, 3}, []int{1, 9, 3}},
		"the same endpoints in another order stay where they are":       {[]int{3, 1, 2}, []int{1, 2, 3}, []int{3, 1, 2}},
		"a Service that loses all its endpoints has no slots":           {[]int{1, 2}, nil, nil},
		"two leave and one arrives: the newcomer fills, the last moves": {[]int{1, 2, 3, 4}, []int{3, 4, 5}, []int{4, 5, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ruleset.Reslot(endpoints(tt.have...), endpoints(tt.want...))
			if diff := cmp.Diff(endpoints(tt.slots...), got, compareAddrPorts); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReslotKeepsEveryEndpointThatCanStay(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	have := endpoints()
	for range 2000 {
		want := endpoints(random.Perm(20)[:random.IntN(20)]...)
		got := ruleset.Reslot(have, want)
		if !sameSet(got, want) {
			t.Fatalf("slots %v do not hold exactly %v", got, want)
		}
		for slot := range min(len(have), len(got)) {
			if slices.Contains(want, have[slot]) && got[slot] != have[slot] {
				t.Fatalf("slot %d was %v, which stays, and is now %v", slot, have[slot], got[slot])
			}
		}
		have = got
	}
}

func sameSet(a, b []netip.AddrPort) bool {
	sorted := func(list []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(list), netip.AddrPort.Compare)
	}
	return slices.Equal(sorted(a), sorted(b))
}
