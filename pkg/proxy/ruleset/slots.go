package ruleset

import (
	"net/netip"
	"slices"
)

// StableSlots assigns the wanted endpoints to slots so that as few slots as possible change. Either list may name an
// endpoint several times: it has that many slots. An endpoint that remains keeps its first slots, as many as want gives
// it; if the table shrinks, endpoints in slots beyond the new end move into the holes, and new endpoints get the
// remaining holes, in the order of their addresses. The order of want makes no difference.
//
// Which slot an endpoint has does not matter to traffic, since slots are picked at random.
func StableSlots(have, want []netip.AddrPort) []netip.AddrPort {
	missing := make(map[netip.AddrPort]int, len(want)) // how many more slots an endpoint needs
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
