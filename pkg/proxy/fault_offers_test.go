package proxy_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// offer is that a frontend may lead to an endpoint.
type offer struct {
	set      string
	family   model.Family
	frontend ruleset.Tuple
	endpoint netip.AddrPort
}

// offersIn returns all offers of tables. A table that is not there offers nothing.
func offersIn(kernel *memoryKernel) map[offer]bool {
	offers := map[offer]bool{}
	for _, family := range model.Families {
		for _, set := range []ruleset.Set{ruleset.Endpoints, ruleset.NodePortEndpoints} {
			elements, err := kernel.Tables.Elements(family, set)
			if err != nil {
				continue
			}
			for _, element := range elements {
				frontend := element.Key
				frontend.Number = 0 // the slot, which history decides
				offers[offer{set.Name, family, frontend, netip.AddrPortFrom(element.Value.Addr, element.Value.Port)}] = true
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

// add takes in a version: what a proxy offers that knows nothing else.
func (v *versions) add(everything model.Change) {
	v.t.Helper()
	kernel := &memoryKernel{}
	fresh := proxy.New(self, v.config, kernel, &recordedFlows{})
	fresh.Apply(everything)
	mustSync(v.t, fresh)
	for offer := range offersIn(kernel) {
		v.offered[offer] = true
	}
}

// allow checks that tables offer nothing that no version offered.
func (v *versions) allow(kernel *memoryKernel) {
	v.t.Helper()
	for offer := range offersIn(kernel) {
		if !v.offered[offer] {
			v.t.Errorf("%+v is in force, which no version of the cluster allowed", offer)
		}
	}
}

// expectBacked checks that whatever class a frontend has, each slot that can be drawn for it leads to an endpoint, and
// the class to a chain.
func expectBacked(t testing.TB, kernel *memoryKernel) {
	t.Helper()
	for _, family := range model.Families {
		for _, of := range []struct{ classes, endpoints ruleset.Set }{
			{ruleset.Services, ruleset.Endpoints}, {ruleset.NodePorts, ruleset.NodePortEndpoints},
		} {
			frontends, err := kernel.Tables.Elements(family, of.classes)
			if err != nil {
				continue // there is no table
			}
			backed := map[ruleset.Tuple]bool{}
			for _, slot := range elementsOf(t, kernel, family, of.endpoints) {
				backed[slot.Key] = true
			}
			dispatched := map[ruleset.Class]bool{}
			for _, entry := range elementsOf(t, kernel, family, ruleset.Dispatch) {
				dispatched[ruleset.Class(entry.Key.Number)] = true
			}
			for _, frontend := range frontends {
				class := ruleset.Class(frontend.Value.Number)
				if !dispatched[class] {
					t.Errorf("%s %+v has class %x, which leads nowhere", of.classes.Name, frontend.Key, class)
				}
				slots, local := slotCounts(t, class)
				for _, table := range []struct {
					first uint32
					count int
				}{{ruleset.ClusterSlot, slots}, {ruleset.LocalSlot, local}} {
					for number := range table.count {
						key := frontend.Key
						key.Number = table.first + uint32(number)
						if !backed[key] {
							t.Errorf("%s %+v has class %x, and slot %x leads nowhere", of.classes.Name, frontend.Key, class, key.Number)
						}
					}
				}
			}
		}
	}
}

// slotCounts returns from how many slots a class draws, and from how many for clients outside if they are others.
func slotCounts(t testing.TB, class ruleset.Class) (slots, local int) {
	t.Helper()
	if class == ruleset.RefuseClass || class == ruleset.DropClass {
		return 0, 0
	}
	const most = 20 // more than any history has endpoints
	for slots := range most {
		if class == ruleset.BalanceClass(slots) {
			return slots, 0
		}
		for local := range most {
			if class == ruleset.SplitClass(local, slots) {
				return slots, local
			}
		}
	}
	t.Errorf("%x is no class", class)
	return 0, 0
}
