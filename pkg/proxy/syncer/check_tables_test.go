package syncer_test

import (
	"cmp"
	"regexp"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// checkTables checks invariants of all tables, and those that the kernel enforces but the kernel in memory does not.
func checkTables(t testing.TB, kernel *memoryKernel, config ruleset.Config) {
	t.Helper()
	for _, family := range config.Families {
		checkNames(t, kernel.Tables.Objects(family))
		for _, b := range balancingIn(t, kernel, family) {
			checkClasses(t, b)
		}
		checkRanges(t, elementsOf(t, kernel, family, ruleset.Sources))
		checkAddrs(t, kernel, family)
	}
}

// nftName matches valid object names in nft. The kernel accepts names of less than 256 bytes.
var nftName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9/_.-]{0,254}$`)

func checkNames(t testing.TB, objects ruleset.Objects) {
	t.Helper()
	for _, name := range slices.Concat(objects.Chains, objects.Sets) {
		if !nftName.MatchString(name) {
			t.Errorf("%q (%d bytes) is not a valid object name", name, len(name))
		}
	}
}

// checkClasses checks that each frontend has as many slots as its class selects from, that its class is dispatched, and
// that affinity entries have only endpoints that the slots have.
func checkClasses(t testing.TB, b balancing) {
	t.Helper()
	slots := slotsOf(t, b.slots)
	used := 0
	for _, frontend := range b.frontends {
		clusterTable, localTable := frontend.key, frontend.key
		clusterTable.Number, localTable.Number = ruleset.ClusterSlot, ruleset.LocalSlot
		inside, outside := len(slots[clusterTable]), len(slots[localTable])
		used += min(inside, 1) + min(outside, 1)
		wanted := []ruleset.Class{ruleset.SplitClass(outside, inside)}
		switch {
		case inside+outside == 0:
			wanted = []ruleset.Class{ruleset.RefuseClass, ruleset.DropClass}
		case outside == 0:
			wanted = append(wanted, ruleset.BalanceClass(inside))
		}
		if !slices.Contains(wanted, frontend.class) || !frontend.dispatched {
			t.Errorf("%s %+v: class %x with %d slots, and %d for external clients; dispatched: %v",
				b.set, frontend.key, frontend.class, inside, outside, frontend.dispatched)
		}
		if frontend.affinityEndpoints == nil {
			continue
		}
		selectable := map[string]bool{}
		for _, endpoint := range slices.Concat(slots[clusterTable], slots[localTable]) {
			selectable[endpoint] = true
		}
		for endpoint := range frontend.affinityEndpoints {
			if !selectable[endpoint.String()] {
				t.Errorf("%s %+v: affinity entries may have %s, which no slot leads to", b.set, frontend.key, endpoint)
			}
		}
		if len(selectable) != len(frontend.affinityEndpoints) {
			t.Errorf("%s %+v: slots lead to %d endpoints, and affinity entries to %d",
				b.set, frontend.key, len(selectable), len(frontend.affinityEndpoints))
		}
	}
	if used != len(slots) || len(b.unusedSlots) > 0 {
		t.Errorf("%s leads to %d load-balancing tables, but there are %d, and %d slots in unused maps",
			b.set, used, len(slots), len(b.unusedSlots))
	}
}

// checkRanges checks that no two ranges of a list overlap: deleting one would delete the other.
func checkRanges(t testing.TB, ranges []ruleset.Element) {
	t.Helper()
	slices.SortFunc(ranges, func(a, b ruleset.Element) int {
		return cmp.Or(cmp.Compare(a.Key.Number, b.Key.Number), a.Key.Addr.Compare(b.Key.Addr))
	})
	for i := range len(ranges) - 1 {
		if a, b := ranges[i].Key, ranges[i+1].Key; a.Number == b.Number && a.Source.Compare(b.Addr) >= 0 {
			t.Errorf("the ranges %s-%s and %s-%s of list %x overlap", a.Addr, a.Source, b.Addr, b.Source, a.Number)
		}
	}
}

// checkAddrs checks that every address is valid in its table, and leads to or from a real one.
func checkAddrs(t testing.TB, kernel *memoryKernel, family model.Family) {
	t.Helper()
	for _, set := range ruleset.StaticSets {
		for _, element := range elementsOf(t, kernel, family, set) {
			for _, addr := range []struct {
				isThere bool
				ruleset.Tuple
			}{{set.Key[0] == ruleset.TypeAddr, element.Key}, {len(set.Value) == 2, element.Value}} {
				if addr.isThere && (model.FamilyOf(addr.Addr) != family || addr.Addr.IsUnspecified() || addr.Addr.Zone() != "") {
					t.Errorf("%s of %s has the invalid address %s", set.Name, family, addr.Addr)
				}
			}
			if isEndpoint := len(set.Value) == 2; isEndpoint && (element.Value.Port == 0 || element.Value.Addr.IsLoopback()) {
				t.Errorf("%s leads to the invalid endpoint %s port %d", set.Name, element.Value.Addr, element.Value.Port)
			}
		}
	}
}
