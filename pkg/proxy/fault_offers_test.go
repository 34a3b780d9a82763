package proxy_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// offer says that a frontend may lead to an endpoint.
type offer struct {
	set      string
	family   model.Family
	frontend ruleset.Tuple
	endpoint netip.AddrPort
}

// offersIn returns all offers of tables: what is drawn, and what clients are remembered with. A table that is not there
// offers nothing.
func offersIn(t testing.TB, kernel *memoryKernel) map[offer]bool {
	t.Helper()
	offers := map[offer]bool{}
	for _, family := range model.Families {
		for _, maps := range balancingIn(t, kernel, family) {
			for _, slot := range maps.slots {
				if !slot.Value.Addr.IsValid() {
					continue // its number leads nowhere any more
				}
				frontend := slot.Key
				frontend.Number = 0 // the slot, which history decides
				offers[offer{maps.set, family, frontend, netip.AddrPortFrom(slot.Value.Addr, slot.Value.Port)}] = true
			}
			for _, frontend := range maps.frontends {
				for endpoint := range frontend.remembered {
					offers[offer{maps.set, family, frontend.key, endpoint}] = true
				}
			}
		}
	}
	return offers
}

// versions is what any version of a cluster offered.
type versions struct {
	t       testing.TB
	config  ruleset.Config
	offered map[offer]bool
}

// add takes in a version: what a proxy that knows only this version offers.
func (v *versions) add(everything model.Change) {
	v.t.Helper()
	kernel := &memoryKernel{}
	fresh := proxy.New(self, v.config, kernel)
	fresh.Apply(everything)
	mustSync(v.t, fresh)
	for offer := range offersIn(v.t, kernel) {
		v.offered[offer] = true
	}
}

// allow checks that tables offer nothing that no version offered.
func (v *versions) allow(kernel *memoryKernel) {
	v.t.Helper()
	for offer := range offersIn(v.t, kernel) {
		if !v.offered[offer] {
			v.t.Errorf("%+v is in force, which no version of the cluster allowed", offer)
		}
	}
}

// expectBacked checks that, whatever class a frontend has, each slot that can be drawn for it leads to an endpoint, and
// that the class leads to a chain.
func expectBacked(t testing.TB, kernel *memoryKernel) {
	t.Helper()
	for _, family := range model.Families {
		for _, maps := range balancingIn(t, kernel, family) {
			backed := map[ruleset.Tuple]bool{}
			for _, slot := range maps.slots {
				backed[slot.Key] = slot.Value.Addr.IsValid()
			}
			for _, frontend := range maps.frontends {
				class := frontend.class
				if !frontend.dispatched {
					t.Errorf("%s %+v has class %x, which leads nowhere", maps.set, frontend.key, class)
				}
				slots, local := slotCounts(t, class)
				for _, table := range []struct {
					first uint32
					count int
				}{{ruleset.ClusterSlot, slots}, {ruleset.LocalSlot, local}} {
					for number := range table.count {
						key := frontend.key
						key.Number = table.first + uint32(number)
						if !backed[key] {
							t.Errorf("%s %+v has class %x, and slot %x leads nowhere", maps.set, frontend.key, class, key.Number)
						}
					}
				}
			}
		}
	}
}

// slotCounts returns from how many slots a class draws, and from how many for clients outside, if that differs.
func slotCounts(t testing.TB, class ruleset.Class) (slots, local int) {
	t.Helper()
	if class == ruleset.RefuseClass || class == ruleset.DropClass {
		return 0, 0
	}
	const mostLocal, most = 20, 1000 // more endpoints than any history has here, and more slots than these have within a bound
	for slots := range most {
		if class == ruleset.BalanceClass(slots) {
			return slots, 0
		}
		for local := range mostLocal {
			if class == ruleset.SplitClass(local, slots) {
				return slots, local
			}
		}
	}
	t.Errorf("%x is no class", class)
	return 0, 0
}
