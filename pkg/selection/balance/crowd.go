package balance

import (
	"math"
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// crowd is the nodes as one Service sees them. Nodes that have the same groups stay alike throughout a plan, so they
// are one entry: the cells, and if the hostname is a key, each node that hosts endpoints of the Service.
type crowd struct {
	keys   int
	groups []int32 // of each entry, key by key
	sums   []tally // of each entry
	// groupOfValue is the group for each number of a key's vocabulary, and for 0, which means no value.
	groupOfValue []int32
	// entry is the entry of each cell, codes is a number for the groups of each cell, and byCode is the entry with a code,
	// plus one; index is used instead if there are many.
	entry  []int32
	codes  []uint64
	byCode []int32
	index  map[uint64]int32
}

// gather finds the entries that a Service's places make of the nodes.
func (e *crowd) gather(d Demand, places *Places) {
	c := d.cells
	e.keys, e.groups = len(places.keys), cleared(e.groups, len(c.cells)*len(places.keys))
	e.codes = cleared(e.codes, len(c.cells))
	codes := uint64(1) // the possible number of codes
	for k, key := range places.keys {
		groups := uint64(places.first[k+1]-places.first[k]) + 1
		switch key {
		case policy.AnyNode:
			e.groupOfValue, groups = append(e.groupOfValue[:0], places.group(k, "")), 1
		case policy.Hostname:
			e.groupOfValue, groups = append(e.groupOfValue[:0], none), 1
		default:
			e.translate(&c.words[k], places, k)
		}
		for i := range c.cells {
			g := e.groupOfValue[c.cells[i].values[k]]
			e.groups[i*e.keys+k] = g
			e.codes[i] *= groups
			if g != none && groups > 1 {
				e.codes[i] += uint64(g - places.first[k] + 1)
			}
		}
		codes = times(codes, groups)
	}
	e.unite(d, codes)
	if k := slices.Index(places.keys, policy.Hostname); k >= 0 {
		e.single(d, places, k)
	}
}

// fewCodes is the number of codes up to which entries are found by a slice, and beyond it by a map.
const fewCodes = 1 << 10

// unite makes one entry of all cells with the same groups, which have the same code. codes is how many codes there can
// be. If it is math.MaxUint64 they may have overflowed and tell nothing: then each cell is an entry of its own. Most
// cells share no value with any endpoint.
func (e *crowd) unite(d Demand, codes uint64) {
	isFew, told := codes <= fewCodes, codes < math.MaxUint64
	if isFew {
		e.byCode = cleared(e.byCode, int(codes))
	} else {
		if e.index == nil {
			e.index = map[uint64]int32{}
		}
		clear(e.index)
	}
	e.sums, e.entry = e.sums[:0], e.entry[:0]
	for i, code := range e.codes {
		at, known := int32(0), false
		switch {
		case isFew:
			at = e.byCode[code] - 1
			known = at >= 0
		case told:
			at, known = e.index[code]
		}
		if !known {
			at = int32(len(e.sums))
			e.sums = append(e.sums, tally{})
			copy(e.of(int(at)), e.of(i)) // never behind the cell
			if isFew {
				e.byCode[code] = at + 1
			} else {
				e.index[code] = at
			}
		}
		e.entry = append(e.entry, at)
		e.sums[at].add(d.in(int32(i)))
	}
	e.groups = e.groups[:len(e.sums)*e.keys]
}

// times returns a product, or the largest number if it would overflow.
func times(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

// translate finds the group of places for each number of a key's vocabulary.
func (e *crowd) translate(words *vocabulary, places *Places, k int) {
	e.groupOfValue = cleared(e.groupOfValue, len(words.words)+1)
	for i := range e.groupOfValue {
		e.groupOfValue[i] = none
	}
	for g := places.first[k]; g < places.first[k+1]; g++ {
		if number, known := words.numbers[places.values[g]]; known {
			e.groupOfValue[number] = g
		}
	}
}

// single takes the nodes that host endpoints out of their cells, and makes each an entry of its own.
func (e *crowd) single(d Demand, places *Places, hostname int) {
	for g := places.first[hostname]; g < places.first[hostname+1]; g++ {
		name := places.values[g]
		node, known := d.cells.nodes[name]
		if !known {
			continue
		}
		sum := tallyOf(d.of(name, node))
		at := int(e.entry[node.cell])
		e.sums[at].take(sum)
		e.sums = append(e.sums, sum)
		e.groups = append(e.groups, e.of(at)...)
		e.groups[len(e.groups)-e.keys+hostname] = g
	}
}

// of returns the groups of an entry.
func (e *crowd) of(entry int) []int32 { return e.groups[entry*e.keys : (entry+1)*e.keys] }
