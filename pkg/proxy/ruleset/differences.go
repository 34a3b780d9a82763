package ruleset

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Difference is an object or element that a table should have and does not, or vice versa.
//
// Its JSON names are an interface: scripts read them.
type Difference struct {
	Table string `json:"table"` // as nft names it: "ip vicinity"
	// Object is the set, map or chain, as nft names it: "map endpoints"; empty if the difference is the table itself.
	Object string `json:"in"`
	// Detail is an element, or describes another difference.
	Detail string `json:"what"`
	// Kind is missing, stray or changed.
	Kind string `json:"kind"`
}

// The kinds of differences.
const (
	Missing    = "missing" // not in the kernel, but desired
	Unexpected = "stray"   // in the kernel, but not desired
	Changed    = "changed"
)

// String describes the difference in one line.
func (d Difference) String() string {
	where := strings.TrimSpace(d.Table + " " + d.Object)
	if d.Detail == "" {
		return where + " is " + d.Kind
	}
	return fmt.Sprintf("%s: %s is %s", where, d.Detail, d.Kind)
}

// Sets returns the sets of a family's table, the static ones first, then the others by name, and how many elements they
// have together.
func (t *Tables) Sets(family model.Family) (sets []Set, elements int) {
	if table, exists := t.tables[family]; exists {
		for _, filled := range table.sortedSets() {
			sets = append(sets, filled.Set)
			elements += len(filled.elements)
		}
	}
	return sets, elements
}

// Chains returns the chains of a family's table, with their rules.
func (t *Tables) Chains(family model.Family) []Chain {
	var chains []Chain
	if table, exists := t.tables[family]; exists {
		for _, chain := range table.sortedChains() {
			chains = append(chains, *chain)
		}
	}
	return chains
}

// Differences compares a family's table with what the kernel has, except for the rules: actual.Contents has the sets.
// Which slots an endpoint of a port has depends on history and does not matter: only their number is compared. Elements
// that packets add to a set are no difference.
func (t *Tables) Differences(family model.Family, actual Objects) []Difference {
	name := Keyword(family) + " " + TableName
	wanted, exists := t.tables[family]
	switch {
	case exists && !actual.Table:
		return []Difference{{Table: name, Kind: Missing}}
	case !exists && actual.Table:
		return []Difference{{Table: name, Kind: Unexpected}}
	case !exists:
		return nil
	}
	var differences []Difference
	for _, filled := range wanted.sortedSets() {
		object := kindOfSet(filled.Set) + " " + filled.Name
		elements, isListed := actual.Contents[filled.Name]
		if !isListed {
			differences = append(differences, Difference{Table: name, Object: object, Kind: Missing})
			continue
		}
		if filled.Dynamic {
			continue
		}
		for _, difference := range filled.compare(elements) {
			difference.Table, difference.Object = name, object
			differences = append(differences, difference)
		}
	}
	for set := range actual.Contents {
		if wanted.sets[set] == nil {
			differences = append(differences, Difference{Table: name, Object: "set " + set, Kind: Unexpected})
		}
	}
	differences = append(differences, compareNames(name, "chain ", maps.Keys(wanted.chains), actual.Chains)...)
	differences = append(differences, compareNames(name, "counter ", maps.Keys(wanted.counters), actual.Counters)...)
	slices.SortStableFunc(differences, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Detail, b.Detail), strings.Compare(a.Kind, b.Kind))
	})
	return differences
}

// compareNames compares the names of the objects of one kind.
func compareNames(table, kind string, wanted iter.Seq[string], actual []string) (differences []Difference) {
	unmatched := map[string]bool{}
	for _, name := range actual {
		unmatched[name] = true
	}
	for name := range wanted {
		if !unmatched[name] {
			differences = append(differences, Difference{Table: table, Object: kind + name, Kind: Missing})
		}
		delete(unmatched, name)
	}
	for name := range unmatched {
		differences = append(differences, Difference{Table: table, Object: kind + name, Kind: Unexpected})
	}
	return differences
}

func kindOfSet(set Set) string {
	if set.IsMap() {
		return "map"
	}
	return "set"
}

// slotsOnly reduces a slot's number to the load-balancing table that it is in.
const slotsOnly = 0xff000000

// compare compares the elements of a set.
func (s *filledSet) compare(actual []Element) []Difference {
	hasSlots := len(s.Key) > 0 && s.Key[len(s.Key)-1] == TypeClass && !s.MapsVerdicts()
	counts := map[Element]int{}
	count := func(element Element, delta int) {
		element = element.bare()
		if number := element.Key.Number & slotsOnly; hasSlots && (number == ClusterSlot || number == LocalSlot) {
			element.Key.Number = number
		}
		counts[element] += delta
	}
	for _, element := range s.elements {
		count(element, 1)
	}
	for _, element := range actual {
		count(element, -1)
	}
	var differences []Difference
	for element, deficit := range counts {
		kind, n := Missing, deficit
		if deficit < 0 {
			kind, n = Unexpected, -deficit
		}
		if n > 0 {
			text := elementText(s.Set, element)
			if n > 1 {
				text = fmt.Sprintf("%s, in %d slots,", text, n)
			}
			differences = append(differences, Difference{Detail: text, Kind: kind})
		}
	}
	return differences
}
