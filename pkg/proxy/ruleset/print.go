package ruleset

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Print writes the tables as `nft list ruleset` would, so that `nft -f` loads them: counters first, at zero, then
// static sets, then the others by name; base chains first, then the others; elements by key.
func (t *Tables) Print(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	for i, family := range slices.Sorted(maps.Keys(t.tables)) {
		if i > 0 {
			fmt.Fprintln(buffered)
		}
		t.tables[family].print(buffered, family)
	}
	return buffered.Flush()
}

func (t *table) print(w *bufio.Writer, family model.Family) {
	fmt.Fprintf(w, "table %s %s {\n", Keyword(family), TableName)
	for _, counter := range slices.Sorted(maps.Keys(t.counters)) {
		fmt.Fprintf(w, "\tcounter %s {\n\t\tpackets 0 bytes 0\n\t}\n\n", counter)
	}
	for i, set := range t.sortedSets() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		set.print(w, family)
	}
	for _, chain := range t.sortedChains() {
		fmt.Fprintln(w)
		chain.print(w, family)
	}
	fmt.Fprintln(w, "}")
}

func (t *table) sortedSets() []*filledSet {
	return slices.SortedFunc(maps.Values(t.sets), func(a, b *filledSet) int {
		return cmp.Or(cmp.Compare(uint(staticRank(a.Name)), uint(staticRank(b.Name))), cmp.Compare(a.Name, b.Name))
	})
}

func (t *table) sortedChains() []*Chain {
	return slices.SortedFunc(maps.Values(t.chains), func(a, b *Chain) int { return a.compare(b) })
}

// compare orders chains as a packet passes them: base chains by their hook, then the others by the number of slots and
// by name.
func (c *Chain) compare(other *Chain) int {
	return cmp.Or(
		cmp.Compare(c.hookRank(), other.hookRank()),
		cmp.Compare(slotsInName(c.Name), slotsInName(other.Name)),
		cmp.Compare(c.Name, other.Name))
}

func (c *Chain) hookRank() int {
	hooks := []Hook{Prerouting, Input, Output, Postrouting, NoHook}
	return slices.Index(hooks, c.Hook)
}

// slotsInName returns the number in a chain's name, so that lb-2 precedes lb-10.
func slotsInName(chain string) int {
	number, _, _ := strings.Cut(strings.TrimPrefix(chain, "lb-"), "-")
	slots, _ := strconv.Atoi(number)
	return slots
}

func (s *filledSet) print(w *bufio.Writer, family model.Family) {
	fmt.Fprintf(w, "\t%s %s {\n\t\t%s\n", kindOfSet(s.Set), s.Name, typeText(family, s.Set))
	if s.Dynamic {
		fmt.Fprint(w, "\t\tflags dynamic,timeout\n")
	}
	for i, element := range s.sorted() {
		lead := ",\n\t\t\t     "
		if i == 0 {
			lead = "\t\telements = { "
		}
		fmt.Fprint(w, lead, elementText(s.Set, element))
	}
	if len(s.elements) > 0 {
		fmt.Fprint(w, " }\n")
	}
	fmt.Fprint(w, "\t}\n")
}

// sorted returns the elements by key.
func (s *filledSet) sorted() []Element {
	elements := slices.Collect(maps.Values(s.elements))
	sortElements(elements)
	return elements
}

// sortElements sorts by key.
func sortElements(elements []Element) {
	slices.SortFunc(elements, func(a, b Element) int { return a.Key.compare(b.Key) })
}

func (t Tuple) compare(other Tuple) int {
	return cmp.Or(
		t.Addr.Compare(other.Addr), t.Source.Compare(other.Source),
		cmp.Compare(t.Proto, other.Proto), cmp.Compare(t.Port, other.Port), cmp.Compare(t.Number, other.Number))
}

func (c *Chain) print(w *bufio.Writer, family model.Family) {
	fmt.Fprintf(w, "\tchain %s {\n", c.Name)
	if c.Hook != NoHook {
		fmt.Fprintf(w, "\t\ttype nat hook %s priority %s; policy accept;\n", hookText(c.Hook), priorityText(c.Hook, c.Priority))
	}
	for _, rule := range c.Rules {
		fmt.Fprintf(w, "\t\t%s\n", rule.text(family))
	}
	fmt.Fprint(w, "\t}\n")
}

func hookText(hook Hook) string {
	switch hook {
	case Prerouting:
		return "prerouting"
	case Input:
		return "input"
	case Output:
		return "output"
	case Postrouting:
		return "postrouting"
	case NoHook:
	}
	panic(fmt.Sprintf("ruleset: hook %d has no text", hook))
}

// priorityText uses nft's names where nft does: dstnat only in prerouting, srcnat only in postrouting.
func priorityText(hook Hook, priority int32) string {
	switch {
	case hook == Prerouting && priority == PriorityDNAT:
		return "dstnat"
	case hook == Postrouting && priority == PrioritySNAT:
		return fmt.Sprintf("srcnat - %d", othersSNAT-PrioritySNAT)
	}
	return strconv.Itoa(int(priority))
}
