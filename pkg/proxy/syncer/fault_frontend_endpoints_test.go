package syncer_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// frontendEndpoint is a frontend with an endpoint to which it may lead.
type frontendEndpoint struct {
	set      string
	family   model.Family
	frontend ruleset.Tuple
	endpoint netip.AddrPort
}

// frontendEndpoints returns each frontend with each of its endpoints: those of slots, and those in affinity entries.
func (b balancing) frontendEndpoints() map[frontendEndpoint]bool {
	pairs := map[frontendEndpoint]bool{}
	for _, slot := range b.slots {
		if !slot.Value.Addr.IsValid() {
			continue // its number has no endpoint any more
		}
		frontend := slot.Key
		frontend.Number = 0 // the slot depends on history
		pairs[frontendEndpoint{b.set, b.family, frontend, netip.AddrPortFrom(slot.Value.Addr, slot.Value.Port)}] = true
	}
	for _, frontend := range b.frontends {
		for endpoint := range frontend.affinityEndpoints {
			pairs[frontendEndpoint{b.set, b.family, frontend.key, endpoint}] = true
		}
	}
	return pairs
}

// checkSlotsHaveEndpoints checks that, whatever class a frontend has, each slot that its class may select leads to an
// endpoint, and that the class leads to a chain. Before a cleanup there may be more slots.
func checkSlotsHaveEndpoints(t testing.TB, b balancing) {
	t.Helper()
	hasEndpoint := map[ruleset.Tuple]bool{}
	for _, slot := range b.slots {
		hasEndpoint[slot.Key] = slot.Value.Addr.IsValid()
	}
	for _, frontend := range b.frontends {
		consecutive := func(first uint32) (slots int) {
			key := frontend.key
			for key.Number = first; hasEndpoint[key]; key.Number++ {
				slots++
			}
			return slots
		}
		inside, outside := consecutive(ruleset.ClusterSlot), consecutive(ruleset.LocalSlot)
		if !frontend.dispatched || !selectsFrom(frontend.class, inside, outside) {
			t.Errorf("%s %+v has class %x, dispatched: %v, and %d and %d slots that lead to endpoints",
				b.set, frontend.key, frontend.class, frontend.dispatched, inside, outside)
		}
	}
}

// selectsFrom reports whether a class selects from at most these numbers of slots, for clients inside and outside.
func selectsFrom(class ruleset.Class, inside, outside int) bool {
	if class == ruleset.RefuseClass || class == ruleset.DropClass {
		return true
	}
	for slots := range inside + 1 {
		if class == ruleset.BalanceClass(slots) {
			return true
		}
		for local := range outside + 1 {
			if class == ruleset.SplitClass(local, slots) {
				return true
			}
		}
	}
	return false
}
