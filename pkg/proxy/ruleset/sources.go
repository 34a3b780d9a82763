package ruleset

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Source ranges. Each list in use has a number, and exists once for all frontends that have it: the cost of a change
// depends only on its own list, and many frontends with one list cost no more than one. The map `restricted` has the
// list of each frontend. The set `sources` has the ranges of all lists: number, first address, last address. So a
// packet finds its range by one lookup for each prefix length.
//
// A list consists of elements only. If it were a set, with a chain that refers to it and a verdict that leads to the
// chain, the kernel would check all lists whenever any change adds a verdict or a rule.

const (
	// listIDBytes make two lists with the same id as unlikely as a hardware fault.
	listIDBytes = 16
	// lengthStep halves the possible number of lookups, to 16 for IPv4 and 64 for IPv6: a prefix of an odd length is
	// stored as its two halves.
	lengthStep = 2
)

// listKey is the number of a list of source ranges. A packet with that class dialled a frontend that has the list.
type listKey struct {
	family model.Family
	class  Class
}

// lengthKey is a prefix length in a family.
type lengthKey struct {
	family model.Family
	bits   int
}

// sourceList is a list of source ranges. Its owners are the ports that have it.
type sourceList struct {
	id     string // the same for the same ranges, and for no others
	ranges []netip.Prefix
}

// listID returns the id of a list: the same for the same prefixes in the same order.
func listID(prefixes []netip.Prefix) string {
	hash := sha256.New()
	for _, prefix := range prefixes {
		addr := prefix.Addr().As16()
		hash.Write(addr[:])
		hash.Write([]byte{byte(prefix.Bits())})
	}
	return hex.EncodeToString(hash.Sum(nil)[:listIDBytes])
}

func (k listKey) compare(other listKey) int {
	return cmp.Or(cmp.Compare(k.family, other.family), cmp.Compare(k.class, other.class))
}

// elements returns the elements of a list in the set of sources.
func (k listKey) elements(ranges []netip.Prefix) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		for _, prefix := range ranges {
			if !eachSourceIn(k.class, prefix, yield) {
				return
			}
		}
	}
}

// eachSourceIn yields the elements as which a prefix is stored.
func eachSourceIn(class Class, prefix netip.Prefix, yield func(Element) bool) bool {
	stored := netip.PrefixFrom(prefix.Masked().Addr(), storedBits(prefix))
	for stored.IsValid() && prefix.Contains(stored.Addr()) {
		last := netipx.PrefixLastIP(stored)
		if !yield(Element{Key: Tuple{Number: uint32(class), Addr: stored.Addr(), Source: last}}) {
			return false
		}
		stored = netip.PrefixFrom(last.Next(), stored.Bits())
	}
	return true
}

func storedBits(prefix netip.Prefix) int {
	return (prefix.Bits() + lengthStep - 1) / lengthStep * lengthStep
}

// SourceRangesChain returns the chain that drops clients that are in no range of the list whose class the packet has.
// The class of a packet that passes is cleared. There is a rule for each prefix length that a list has, multiples
// of the highest power of two first: clients in a /16, a /24 or a /64 do not wait for rarer lengths of another list.
func SourceRangesChain(lengths []int) Chain {
	lengths = slices.SortedFunc(slices.Values(lengths), func(a, b int) int {
		return cmp.Or(cmp.Compare(bits.TrailingZeros(uint(b)), bits.TrailingZeros(uint(a))), cmp.Compare(b, a))
	})
	chain := Chain{Name: sourceRangesChain, Hook: NoHook}
	for _, length := range lengths {
		match := FromRange{Bits: length, Set: Sources}
		chain.Rules = append(chain.Rules, Rule{match, WritePriority{}, VerdictStatement{Verdict{Kind: Return}}})
	}
	chain.Rules = append(chain.Rules, Rule{VerdictStatement{Verdict{Kind: Drop}}})
	return chain
}

// lengthsOf returns the prefix lengths of the lists of a family, according to any of the counts.
func lengthsOf(family model.Family, counts ...map[lengthKey]int) []int {
	var lengths []int
	for _, each := range counts {
		for key, lists := range each {
			if key.family == family && lists > 0 && !slices.Contains(lengths, key.bits) {
				lengths = append(lengths, key.bits)
			}
		}
	}
	return lengths
}

// assignList gives the list of a port its number: the one that its content determines, so that it is the same after a
// restart, or the next one that no other list has.
func (b *planBuilder) assignList(port *Port) {
	if !port.isRestricted() {
		return
	}
	id := b.listID(port.Sources)
	port.list = numberedClass(sourcesClass, id, func(class Class) string {
		return planned(b.plan.lists, b.mirror.lists, listKey{port.ID.Family, class}).value.id
	})
}

// listID returns the id of a list. It is cached, because many ports of a Service have the same list.
func (b *planBuilder) listID(prefixes []netip.Prefix) string {
	if b.ids == nil {
		b.ids = map[*netip.Prefix]string{}
	}
	id, known := b.ids[&prefixes[0]]
	if !known {
		id = listID(prefixes)
		b.ids[&prefixes[0]] = id
	}
	return id
}

// addListOwner records that a port gains or loses its list.
func (b *planBuilder) addListOwner(port *Port, delta int) {
	if !port.isRestricted() {
		return
	}
	var list sourceList
	if delta > 0 {
		list = sourceList{b.listID(port.Sources), port.Sources}
	}
	addOwner(b.plan.lists, b.mirror.lists, listKey{port.ID.Family, port.list}, list, delta)
}

// resolveLists turns the counts of owners into elements to add and to delete.
func (b *planBuilder) resolveLists() {
	for _, key := range slices.SortedFunc(maps.Keys(b.plan.lists), listKey.compare) { // batches are deterministic
		list, setKey := b.plan.lists[key], elementsKey{key.family, staticRank(Sources.Name)}
		switch existed := b.mirror.lists[key].owners > 0; {
		case existed && list.owners == 0:
			b.countLengths(key.family, list.value, -1)
			b.deletes[setKey] = slices.AppendSeq(b.deletes[setKey], key.elements(list.value.ranges))
		case !existed && list.owners > 0:
			b.countLengths(key.family, list.value, +1)
			b.adds[setKey] = slices.AppendSeq(b.adds[setKey], key.elements(list.value.ranges))
		}
	}
}

// countLengths counts a list for each of its prefix lengths.
func (b *planBuilder) countLengths(family model.Family, list sourceList, delta int) {
	seen := map[int]bool{}
	for _, prefix := range list.ranges {
		seen[storedBits(prefix)] = true
	}
	for length := range seen {
		addTo(b.plan.lengths, b.mirror.lengths, lengthKey{family, length}, delta)
	}
}

// replaceSourceRanges rewrites the rules if the lists of a family now have other prefix lengths: a new length is added
// before anything leads to it, and an old one removed once nothing does.
func (b *planBuilder) replaceSourceRanges(batch *Batch, isPrerequisite bool) {
	if len(b.plan.lengths) == 0 {
		return
	}
	after := maps.Clone(b.mirror.lengths)
	maps.Copy(after, b.plan.lengths)
	for _, family := range b.mirror.config.Families {
		have, want := lengthsOf(family, b.mirror.lengths), lengthsOf(family, after)
		both := lengthsOf(family, b.mirror.lengths, after)
		if isPrerequisite && len(both) > len(have) {
			batch.rewrite(family, SourceRangesChain(both))
		}
		if !isPrerequisite && len(both) > len(want) {
			batch.rewrite(family, SourceRangesChain(want))
		}
	}
}

// allSources returns the ranges of all lists of a family.
func (m *Mirror) allSources(family model.Family) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		for key, list := range m.lists {
			if key.family != family {
				continue
			}
			for element := range key.elements(list.value.ranges) {
				if !yield(element) {
					return
				}
			}
		}
	}
}

// acceptLists takes over the lists of a plan. An unused one keeps its number until the cleanup deleted its ranges.
func (m *Mirror) acceptLists(plan *Plan) {
	for key, list := range plan.lists {
		m.lists[key] = list
		delete(m.leftoverLists, key)
		if list.owners == 0 {
			m.leftoverLists[key] = true
		}
	}
	acceptCounts(m.lengths, plan.lengths)
}

// freeLists frees the numbers of the lists of a family whose ranges the cleanup deleted.
func (m *Mirror) freeLists(family model.Family) {
	for key := range m.leftoverLists {
		if key.family == family {
			delete(m.lists, key)
			delete(m.leftoverLists, key)
		}
	}
}

// numberedClass returns the class that a name determines, or the next one that no other name has.
func numberedClass(first Class, name string, nameOf func(Class) (name string)) Class {
	hash := sha256.Sum256([]byte(name))
	for number := binary.BigEndian.Uint32(hash[:]); ; number++ {
		class := first | Class(number&maxListNumber)
		if other := nameOf(class); other == "" || other == name {
			return class
		}
	}
}
