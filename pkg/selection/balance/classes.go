package balance

import (
	"math"
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// serviceClasses are the nodes from the view of one Service. Nodes with the same groups are treated alike throughout a
// plan, so they are one entry: the node classes, and if the hostname is a key, each node that hosts endpoints of the
// Service.
type serviceClasses struct {
	keys   int
	groups []int32 // of each entry, key by key
	sums   []sums  // of each entry
	// groupOfValue maps each interned number of a key's value to its group. Number 0 means no value.
	groupOfValue []int32
	// entry maps each node class to its entry, codes has a number for the groups of each class, and byCode has the entry
	// for each code, plus one. If there are many codes, index replaces byCode.
	entry  []int32
	codes  []uint64
	byCode []int32
	index  map[uint64]int32
}

// build builds the entries for the endpoint classes of a Service.
func (e *serviceClasses) build(d Demand, endpointClasses *EndpointClasses) {
	c := d.cells
	e.keys, e.groups = len(endpointClasses.keys), zeroed(e.groups, len(c.cells)*len(endpointClasses.keys))
	e.codes = zeroed(e.codes, len(c.cells))
	codes := uint64(1) // the possible number of codes
	for k, key := range endpointClasses.keys {
		groups := uint64(endpointClasses.first[k+1]-endpointClasses.first[k]) + 1
		switch key {
		case policy.AnyNode:
			e.groupOfValue, groups = append(e.groupOfValue[:0], endpointClasses.group(k, "")), 1
		case policy.Hostname:
			e.groupOfValue, groups = append(e.groupOfValue[:0], noGroup), 1
		default:
			e.mapValues(&c.interners[k], endpointClasses, k)
		}
		for i := range c.cells {
			g := e.groupOfValue[c.cells[i].values[k]]
			e.groups[i*e.keys+k] = g
			e.codes[i] *= groups
			if g != noGroup && groups > 1 {
				e.codes[i] += uint64(g - endpointClasses.first[k] + 1)
			}
		}
		codes = times(codes, groups)
	}
	e.mergeEqual(d, codes)
	if k := slices.Index(endpointClasses.keys, policy.Hostname); k >= 0 {
		e.isolateHosts(d, endpointClasses, k)
	}
}

// maxSliceCodes is the number of codes up to which byCode finds entries, and beyond it index.
const maxSliceCodes = 1 << 10

// mergeEqual makes one entry of all node classes with the same groups, which have the same code. codes is the number of
// possible codes. If it is math.MaxUint64, codes may have overflowed and are not unique: then each class is an entry of
// its own. Most node classes share no value with any endpoint.
func (e *serviceClasses) mergeEqual(d Demand, codes uint64) {
	isFew, told := codes <= maxSliceCodes, codes < math.MaxUint64
	if isFew {
		e.byCode = zeroed(e.byCode, int(codes))
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
			e.sums = append(e.sums, sums{})
			copy(e.groupsOf(int(at)), e.groupsOf(i)) // at is never greater than i
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

// times returns a product, or math.MaxUint64 if it would overflow.
func times(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

// mapValues sets groupOfValue for the interned values of a key.
func (e *serviceClasses) mapValues(interner *interner, endpointClasses *EndpointClasses, k int) {
	e.groupOfValue = zeroed(e.groupOfValue, len(interner.strings)+1)
	for i := range e.groupOfValue {
		e.groupOfValue[i] = noGroup
	}
	for g := endpointClasses.first[k]; g < endpointClasses.first[k+1]; g++ {
		if number, known := interner.numbers[endpointClasses.values[g]]; known {
			e.groupOfValue[number] = g
		}
	}
}

// isolateHosts takes the nodes that host endpoints out of their classes, and makes each an entry of its own.
func (e *serviceClasses) isolateHosts(d Demand, endpointClasses *EndpointClasses, hostname int) {
	for g := endpointClasses.first[hostname]; g < endpointClasses.first[hostname+1]; g++ {
		name := endpointClasses.values[g]
		node, known := d.cells.nodes[name]
		if !known {
			continue
		}
		sum := nodeSums(d.of(name, node))
		at := int(e.entry[node.cell])
		e.sums[at].subtract(sum)
		e.sums = append(e.sums, sum)
		e.groups = append(e.groups, e.groupsOf(at)...)
		e.groups[len(e.groups)-e.keys+hostname] = g
	}
}

// groupsOf returns the groups of an entry.
func (e *serviceClasses) groupsOf(entry int) []int32 {
	return e.groups[entry*e.keys : (entry+1)*e.keys]
}
