package ruleset

import (
	"net/netip"
	"slices"
)

// StableSlots gives the wanted endpoints slots so that as few slots as possible change. Either list may name an endpoint
// several times: it owns that many slots. An endpoint that stays keeps its first slots, as many as it is wanted for;
// if the table shrinks, endpoints in slots beyond the new end move into the holes, and new endpoints get the remaining
// holes, in the order of their addresses. The order of want makes no difference.
//
// Which slot an endpoint has means nothing to traffic, since slots are drawn at random.
func StableSlots(have, want []netip.AddrPort) []netip.AddrPort {
	missing := make(map[netip.AddrPort]int, len(want)) // how many more slots an endpoint shall have
	for _, endpoint := range want {
		missing[endpoint]++
	}
	slots := make([]netip.AddrPort, len(want))
	for slot, endpoint := range have[:min(len(have), len(slots))] {
		if missing[endpoint] > 0 {
			slots[slot] = endpoint
			missing[endpoint]--
		}
	}
	hole := 0 // there are as many holes as slots missing
	fill := func(endpoint netip.AddrPort) {
		if missing[endpoint] == 0 {
			return
		}
		for slots[hole].IsValid() {
			hole++
		}
		slots[hole] = endpoint
		missing[endpoint]--
	}
	for _, endpoint := range have[min(len(have), len(slots)):] {
		fill(endpoint)
	}
	if !slices.IsSortedFunc(want, netip.AddrPort.Compare) {
		want = slices.SortedFunc(slices.Values(want), netip.AddrPort.Compare)
	}
	for _, endpoint := range want {
		fill(endpoint)
	}
	return slots
}
