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
	// In is the set, map or chain, as nft names it: "map endpoints"; empty if the difference is the table itself.
	In string `json:"in"`
	// What is an element, or describes another difference.
	What string `json:"what"`
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
	where := strings.TrimSpace(d.Table + " " + d.In)
	if d.What == "" {
		return where + " is " + d.Kind
	}
	return fmt.Sprintf("%s: %s is %s", where, d.What, d.Kind)
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

// Differences compares a family's table with what the kernel has, except for the rules: held.Contents has the sets.
// Which slots an endpoint of a port has depends on history and does not matter: only their number is compared. Elements
// that packets add to a set are no difference.
func (t *Tables) Differences(family model.Family, held Objects) []Difference {
	name := Keyword(family) + " " + TableName
	wanted, exists := t.tables[family]
	switch {
	case exists && !held.Table:
		return []Difference{{Table: name, Kind: Missing}}
	case !exists && held.Table:
		return []Difference{{Table: name, Kind: Unexpected}}
	case !exists:
		return nil
	}
	var differences []Difference
	for _, filled := range wanted.sortedSets() {
		in := kindOfSet(filled.Set) + " " + filled.Name
		elements, isThere := held.Contents[filled.Name]
		if !isThere {
			differences = append(differences, Difference{Table: name, In: in, Kind: Missing})
			continue
		}
		if filled.Dynamic {
			continue
		}
		for _, one := range filled.compare(elements) {
			one.Table, one.In = name, in
			differences = append(differences, one)
		}
	}
	for set := range held.Contents {
		if wanted.sets[set] == nil {
			differences = append(differences, Difference{Table: name, In: "set " + set, Kind: Unexpected})
		}
	}
	differences = append(differences, compareNames(name, "chain ", maps.Keys(wanted.chains), held.Chains)...)
	differences = append(differences, compareNames(name, "counter ", maps.Keys(wanted.counters), held.Counters)...)
	slices.SortStableFunc(differences, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.In, b.In), strings.Compare(a.What, b.What), strings.Compare(a.Kind, b.Kind))
	})
	return differences
}

// compareNames compares the names of the objects of one kind.
func compareNames(table, kind string, wanted iter.Seq[string], held []string) (differences []Difference) {
	isStray := map[string]bool{}
	for _, name := range held {
		isStray[name] = true
	}
	for name := range wanted {
		if !isStray[name] {
			differences = append(differences, Difference{Table: table, In: kind + name, Kind: Missing})
		}
		delete(isStray, name)
	}
	for name := range isStray {
		differences = append(differences, Difference{Table: table, In: kind + name, Kind: Unexpected})
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
func (s *filledSet) compare(held []Element) []Difference {
	hasSlots := len(s.Key) > 0 && s.Key[len(s.Key)-1] == TypeClass && !s.MapsVerdicts()
	counts := map[Element]int{}
	count := func(element Element, by int) {
		element = element.bare()
		if number := element.Key.Number & slotsOnly; hasSlots && (number == ClusterSlot || number == LocalSlot) {
			element.Key.Number = number
		}
		counts[element] += by
	}
	for _, element := range s.elements {
		count(element, 1)
	}
	for _, element := range held {
		count(element, -1)
	}
	var differences []Difference
	for element, more := range counts {
		kind, n := Missing, more
		if more < 0 {
			kind, n = Unexpected, -more
		}
		if n > 0 {
			text := elementText(s.Set, element)
			if n > 1 {
				text = fmt.Sprintf("%s, in %d slots,", text, n)
			}
			differences = append(differences, Difference{What: text, Kind: kind})
		}
	}
	return differences
}
