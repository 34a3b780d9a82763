package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// crowd is the nodes as one Service sees them. Nodes that have the same groups stay alike throughout a plan, so they
// are one entry: the cells, and if the hostname is a key, each node that hosts endpoints of the Service.
type crowd struct {
	keys   int
	groups []int32 // of each entry, key by key
	sums   []tally // of each entry
	// groupOfValue is the group for each number of a key's vocabulary, and for 0, which is no value.
	groupOfValue []int32
}

// gather finds the entries that a Service's places make of the nodes.
func (e *crowd) gather(d Demand, places *Places) {
	c := d.cells
	e.keys, e.groups, e.sums = len(places.keys), cleared(e.groups, len(c.cells)*len(places.keys)), e.sums[:0]
	for k, key := range places.keys {
		switch key {
		case policy.AnyNode:
			e.groupOfValue = append(e.groupOfValue[:0], places.group(k, ""))
		case policy.Hostname:
			e.groupOfValue = append(e.groupOfValue[:0], none)
		default:
			e.translate(&c.words[k], places, k)
		}
		for i := range c.cells {
			e.groups[i*e.keys+k] = e.groupOfValue[c.cells[i].values[k]]
		}
	}
	for i := range c.cells {
		e.sums = append(e.sums, d.in(int32(i)))
	}
	if k := slices.Index(places.keys, policy.Hostname); k >= 0 {
		e.single(d, places, k)
	}
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
		e.sums[node.cell].take(sum)
		e.sums = append(e.sums, sum)
		at := int(node.cell) * e.keys
		e.groups = append(e.groups, e.groups[at:at+e.keys]...)
		e.groups[len(e.groups)-e.keys+hostname] = g
	}
}

// of returns the groups of an entry.
func (e *crowd) of(entry int) []int32 { return e.groups[entry*e.keys : (entry+1)*e.keys] }
