package ruleset

import "net/netip"

// Reslot gives the wanted endpoints slots so that as few slots as possible change: an endpoint that stays keeps its slot, a
// new one takes the lowest free one, and if the table shrinks the last ones move into the holes.
//
// Which slot an endpoint has means nothing to traffic, since slots are drawn at random.
func Reslot(have, want []netip.AddrPort) []netip.AddrPort {
	arrived := make(map[netip.AddrPort]bool, len(want))
	for _, endpoint := range want {
		arrived[endpoint] = true
	}
	slots := make([]netip.AddrPort, len(want))
	taken := make([]bool, len(want))
	var moved []netip.AddrPort // stay, but their slot is beyond the new end
	for slot, endpoint := range have {
		if !arrived[endpoint] {
			continue
		}
		delete(arrived, endpoint)
		if slot >= len(want) {
			moved = append(moved, endpoint)
			continue
		}
		slots[slot], taken[slot] = endpoint, true
	}
	for _, endpoint := range want {
		if arrived[endpoint] {
			moved = append(moved, endpoint)
		}
	}
	for slot := range slots {
		if !taken[slot] {
			slots[slot], moved = moved[0], moved[1:]
		}
	}
	return slots
}
