package ruleset

import (
	"net/netip"
	"slices"
)

// Reslot gives the wanted endpoints slots so that as few slots as possible change. Either list may name an endpoint several
// times: it owns that many slots. An endpoint that stays keeps its first slots, as many as it is wanted for; if the table
// shrinks, those beyond the new end move into the holes, and the holes that are left go to what is new, in the order of the
// addresses. The order of want makes no difference.
//
// Which slot an endpoint has means nothing to traffic, since slots are drawn at random.
func Reslot(have, want []netip.AddrPort) []netip.AddrPort {
	missing := make(map[netip.AddrPort]int, len(want)) // how many more slots an endpoint shall have
	for _, endpoint := range want {
		missing[endpoint]++
	}
	slots := make([]netip.AddrPort, len(want))
	var holes []int
	for slot := range slots {
		if slot >= len(have) || missing[have[slot]] == 0 {
			holes = append(holes, slot)
			continue
		}
		slots[slot] = have[slot]
		missing[have[slot]]--
	}
	// There are as many holes as slots missing.
	fill := make([]netip.AddrPort, 0, len(holes))
	take := func(endpoint netip.AddrPort) {
		if missing[endpoint] > 0 {
			fill = append(fill, endpoint)
			missing[endpoint]--
		}
	}
	for _, endpoint := range have[min(len(have), len(slots)):] {
		take(endpoint)
	}
	moved := len(fill)
	for _, endpoint := range want {
		take(endpoint)
	}
	slices.SortFunc(fill[moved:], netip.AddrPort.Compare)
	for i, slot := range holes {
		slots[slot] = fill[i]
	}
	return slots
}
