package balance

import (
	"math"
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// serviceClasses partitions the nodes for one Service. All nodes that belong to the same group for every key form one
// entry. If the hostname is a key, each node with endpoints is an entry of its own.
type serviceClasses struct {
	keys   int
	groups []int32 // of each entry, key by key
	totals []sums  // of each entry
	// groupOfValue is scratch space for the current key: the group of each interned value, by its number. Number 0 is the
	// missing value.
	groupOfValue []int32
	// entry maps each node class to its entry, and codes encodes the groups of each class as a number. byCode[code] is
	// the entry's index + 1; 0 means no entry. If there are many codes, index replaces byCode.
	entry  []int32
	codes  []uint64
	byCode []int32
	index  map[uint64]int32
}

// build builds the entries for the endpoint classes of a Service.
func (s *serviceClasses) build(d Demand, endpointClasses *EndpointClasses) {
	c := d.nodeClasses
	s.keys, s.groups = len(endpointClasses.keys), zeroed(s.groups, len(c.classes)*len(endpointClasses.keys))
	s.codes = zeroed(s.codes, len(c.classes))
	numCodes := uint64(1) // the number of possible codes
	for k, key := range endpointClasses.keys {
		numGroups := uint64(endpointClasses.firstGroup[k+1]-endpointClasses.firstGroup[k]) + 1
		switch key {
		case policy.AnyNode:
			s.groupOfValue, numGroups = append(s.groupOfValue[:0], endpointClasses.group(k, "")), 1
		case policy.Hostname:
			s.groupOfValue, numGroups = append(s.groupOfValue[:0], noGroup), 1
		default:
			s.mapValues(&c.interners[k], endpointClasses, k)
		}
		for i := range c.classes {
			g := s.groupOfValue[c.classes[i].values[k]]
			s.groups[i*s.keys+k] = g
			s.codes[i] *= numGroups
			if g != noGroup && numGroups > 1 {
				s.codes[i] += uint64(g - endpointClasses.firstGroup[k] + 1)
			}
		}
		numCodes = saturatingMul(numCodes, numGroups)
	}
	s.mergeEqual(d, numCodes)
	if k := slices.Index(endpointClasses.keys, policy.Hostname); k >= 0 {
		s.isolateHosts(d, endpointClasses, k)
	}
}

// maxSliceCodes is the largest number of codes for which the slice byCode is used; above it, the map index is used.
const maxSliceCodes = 1 << 10

// mergeEqual makes one entry of all node classes with the same groups, which have the same code. numCodes is the number
// of possible codes. If it is math.MaxUint64, codes may have overflowed and are not unique: then each class is an entry
// of its own. Usually most node classes share no value with any endpoint, so they form one entry.
func (s *serviceClasses) mergeEqual(d Demand, numCodes uint64) {
	fitsSlice, hasUniqueCodes := numCodes <= maxSliceCodes, numCodes < math.MaxUint64
	if fitsSlice {
		s.byCode = zeroed(s.byCode, int(numCodes))
	} else {
		if s.index == nil {
			s.index = map[uint64]int32{}
		}
		clear(s.index)
	}
	s.totals, s.entry = s.totals[:0], s.entry[:0]
	for i, code := range s.codes {
		n, known := int32(0), false
		switch {
		case fitsSlice:
			n = s.byCode[code] - 1
			known = n >= 0
		case hasUniqueCodes:
			n, known = s.index[code]
		}
		if !known {
			n = int32(len(s.totals))
			s.totals = append(s.totals, sums{})
			copy(s.groupsOf(int(n)), s.groupsOf(i)) // n is never greater than i
			if fitsSlice {
				s.byCode[code] = n + 1
			} else {
				s.index[code] = n
			}
		}
		s.entry = append(s.entry, n)
		s.totals[n].add(d.classSums(int32(i)))
	}
	s.groups = s.groups[:len(s.totals)*s.keys]
}

// saturatingMul returns a product, or math.MaxUint64 if it would overflow.
func saturatingMul(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

// mapValues sets groupOfValue for the interned values of a key.
func (s *serviceClasses) mapValues(interner *interner, endpointClasses *EndpointClasses, k int) {
	s.groupOfValue = zeroed(s.groupOfValue, len(interner.strings)+1)
	for i := range s.groupOfValue {
		s.groupOfValue[i] = noGroup
	}
	for g := endpointClasses.firstGroup[k]; g < endpointClasses.firstGroup[k+1]; g++ {
		if number, known := interner.numbers[endpointClasses.values[g]]; known {
			s.groupOfValue[number] = g
		}
	}
}

// isolateHosts takes the nodes that host endpoints out of their classes, and makes each an entry of its own.
// hostnameKey is the index of policy.Hostname among the keys.
func (s *serviceClasses) isolateHosts(d Demand, endpointClasses *EndpointClasses, hostnameKey int) {
	for g := endpointClasses.firstGroup[hostnameKey]; g < endpointClasses.firstGroup[hostnameKey+1]; g++ {
		name := endpointClasses.values[g]
		node, known := d.nodeClasses.nodes[name]
		if !known {
			continue
		}
		sum := d.nodeSums(name, node)
		n := int(s.entry[node.class])
		s.totals[n].subtract(sum)
		s.totals = append(s.totals, sum)
		s.groups = append(s.groups, s.groupsOf(n)...)
		s.groups[len(s.groups)-s.keys+hostnameKey] = g
	}
}

// groupsOf returns the groups of an entry.
func (s *serviceClasses) groupsOf(entry int) []int32 {
	return s.groups[entry*s.keys : (entry+1)*s.keys]
}
