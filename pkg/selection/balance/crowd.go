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
}

// crowd returns the entries that a Service's places make of the nodes.
func (d Demand) crowd(places *Places) crowd {
	c, keys := d.cells, len(places.keys)
	translate := make([][]int32, keys)
	for k, key := range places.keys {
		if key != policy.AnyNode && key != policy.Hostname {
			translate[k] = c.words[k].translate(places, k)
		}
	}
	entries := crowd{keys: keys, groups: make([]int32, 0, len(c.cells)*keys), sums: make([]tally, 0, len(c.cells))}
	for i := range c.cells {
		for k, key := range places.keys {
			group := int32(none)
			switch value := c.cells[i].values[k]; {
			case key == policy.AnyNode:
				group = places.group(k, "")
			case value > 0 && key != policy.Hostname:
				group = translate[k][value-1]
			}
			entries.groups = append(entries.groups, group)
		}
		entries.sums = append(entries.sums, d.in(int32(i)))
	}
	if k := slices.Index(places.keys, policy.Hostname); k >= 0 {
		entries.single(d, places, k)
	}
	return entries
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

// translate returns, for each number of the vocabulary less one, the group of places with that value of a key.
func (v *vocabulary) translate(places *Places, k int) []int32 {
	groups := make([]int32, len(v.words))
	for i := range groups {
		groups[i] = none
	}
	for g := places.first[k]; g < places.first[k+1]; g++ {
		if number, known := v.numbers[places.values[g]]; known {
			groups[number-1] = g
		}
	}
	return groups
}
