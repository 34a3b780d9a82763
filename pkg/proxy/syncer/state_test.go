package syncer_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// state is the content of a family's table, except for the order of slots, which depends on history and does not matter
// to traffic.
type state struct {
	Objects  ruleset.Objects
	Elements map[string][]ruleset.Element
	Slots    map[string]map[ruleset.Tuple][]string // by map, and by frontend with the first slot of its table
	Chains   []string
}

func stateOf(t testing.TB, kernel *memoryKernel, family model.Family, text string) state {
	t.Helper()
	result := state{
		Objects:  kernel.Tables.Objects(family),
		Elements: map[string][]ruleset.Element{},
		Slots:    map[string]map[ruleset.Tuple][]string{},
		Chains:   chainsOf(text, family),
	}
	for _, set := range ruleset.StaticSets {
		elements, err := kernel.Elements(family, set)
		if err != nil {
			t.Fatalf("read %s: %v", set.Name, err)
		}
		if strings.HasSuffix(set.Name, "endpoints") {
			result.Slots[set.Name] = slotsOf(t, elements)
			continue
		}
		result.Elements[set.Name] = elements
	}
	for _, set := range dedicatedMaps(result.Objects) {
		result.Slots[set.Name] = slotsOf(t, elementsOf(t, kernel, family, set))
	}
	return result
}

// dedicatedMaps returns the dedicated maps of ports with many frontends and endpoints.
func dedicatedMaps(objects ruleset.Objects) []ruleset.Set {
	var sets []ruleset.Set
	for _, name := range objects.Sets {
		if strings.HasPrefix(name, "endpoints-") || strings.HasPrefix(name, "sticky-endpoints-") {
			sets = append(sets, ruleset.Set{Name: name})
		}
	}
	return sets
}

// slotsOf returns the endpoints of each load-balancing table, or their numbers. Its slots must be contiguous: a random
// selection of a missing slot would find nothing.
func slotsOf(t testing.TB, elements []ruleset.Element) map[ruleset.Tuple][]string {
	t.Helper()
	tables := map[ruleset.Tuple][]string{}
	for _, element := range elements { // by slot
		table := element.Key
		table.Number = ruleset.LocalSlot
		if element.Key.Number >= ruleset.ClusterSlot {
			table.Number = ruleset.ClusterSlot
		}
		if slot := int(element.Key.Number - table.Number); slot != len(tables[table]) {
			t.Fatalf("%+v: slot %d follows %d slots", element.Key, slot, len(tables[table]))
		}
		endpoint := fmt.Sprintf("%#x", element.Value.Number)
		if element.Value.Addr.IsValid() {
			endpoint = netip.AddrPortFrom(element.Value.Addr, element.Value.Port).String()
		}
		tables[table] = append(tables[table], endpoint)
	}
	for _, endpoints := range tables {
		slices.Sort(endpoints)
	}
	return tables
}

// chainsOf returns the chains of a family's table, as text.
func chainsOf(text string, family model.Family) []string {
	var chains []string
	for table := range strings.SplitSeq(text, "\n}\n") {
		if !strings.HasPrefix(strings.TrimSpace(table), "table "+ruleset.Keyword(family)+" ") {
			continue
		}
		for block := range strings.SplitSeq(table, "\n\n") {
			if strings.HasPrefix(block, "\tchain ") {
				chains = append(chains, block)
			}
		}
	}
	return chains
}

// checkLikeFreshStart checks that the kernel has the same tables as after a fresh start: with a new proxy, the same
// cluster, and a kernel that has only the numbers of session affinity.
func checkLikeFreshStart(t testing.TB, kernel *memoryKernel, everything model.Change) {
	t.Helper()
	checkLikeFreshStartOf(t, self, bothFamilies, kernel, everything)
}

// checkLikeFreshStartOf is checkLikeFreshStart for any node and configuration.
func checkLikeFreshStartOf(t testing.TB, node string, config ruleset.Config, kernel *memoryKernel, everything model.Change) {
	t.Helper()
	fresh := &memoryKernel{numbers: numbersIn(kernel)}
	p := syncer.New(node, config, fresh)
	p.Apply(everything)
	mustSync(t, p)
	checkSameTables(t, config, fresh, kernel)
}

// checkSameTables checks that two kernels have the same tables.
func checkSameTables(t testing.TB, config ruleset.Config, fresh, kernel *memoryKernel) {
	t.Helper()
	want, got := fresh.text(t), kernel.text(t)
	for _, family := range config.Families {
		opts := cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})
		if diff := cmp.Diff(stateOf(t, fresh, family, want), stateOf(t, kernel, family, got), opts); diff != "" {
			t.Fatalf("%s table (-fresh start +after the history):\n%s", family, diff)
		}
		if differences := fresh.Differences(family, contentsOf(t, kernel, family)); len(differences) > 0 {
			t.Fatalf("`proxy status` would report these differences after the history: %v", differences)
		}
	}
}

// contentsOf returns what `proxy status` reads of a table.
func contentsOf(t testing.TB, kernel *memoryKernel, family model.Family) ruleset.Objects {
	t.Helper()
	objects := kernel.Tables.Objects(family)
	contents := ruleset.Objects{Table: objects.Table, Chains: objects.Chains}
	sets, _ := kernel.Sets(family)
	for _, set := range sets {
		elements, err := kernel.Elements(family, set)
		if err != nil {
			t.Fatal(err)
		}
		contents.Add(set.Name, elements)
	}
	return contents
}

// mergeAs is Change.Merge as seen from a node: the node keeps its last state when its own object is deleted.
func mergeAs(node string, earlier, later model.Change) model.Change {
	merged := earlier.Merge(later)
	if newest, known := later.Nodes[node]; known && newest == nil {
		merged.Nodes[node] = earlier.Nodes[node]
	}
	return merged
}

func mustSync(t testing.TB, p *syncer.Proxy) syncer.Report {
	t.Helper()
	report, err := p.Sync(t.Context())
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	if report.CleanupErr != nil {
		t.Fatalf("cleanup: %v", report.CleanupErr)
	}
	return report
}
