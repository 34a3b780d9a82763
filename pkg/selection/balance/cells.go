package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Cells are the Nodes of a cluster as one list of topology keys sees them: nodes with the same values of all keys but
// the hostname are a cell. A node that comes, goes or changes costs no more in a large cluster than in a small one;
// only the own node, when it moves to another cell, costs a look at all nodes.
//
// It is not safe for use by several goroutines while it changes.
type Cells struct {
	keys  []policy.Key
	self  string
	nodes map[string]node
	// cells are never moved: those without nodes wait in free to be used again.
	cells []cell
	free  []int32
	index map[tuple]int32
	words []vocabulary // by key
	// before are the nodes of this node's cell that come before it by name. others has the same for all nodes, once somebody
	// asks about another one.
	before tally
	others before
}

type node struct {
	cell   int32
	demand uint32
}

type cell struct {
	values tuple
	tally
}

// tuple is a value for each key, as its number in the key's vocabulary; 0: none, or the key needs none. Cells may have the zone
// as one more key.
type tuple [policy.MaxKeys + 1]int32

// NewCells returns the cells of a cluster without nodes, for some keys, as seen from a node. There are at most
// policy.MaxKeys keys plus one, all different.
func NewCells(keys []policy.Key, self string) *Cells {
	return &Cells{
		keys:  slices.Clone(keys),
		self:  self,
		nodes: map[string]node{},
		index: map[tuple]int32{},
		words: make([]vocabulary, len(keys)),
	}
}

// Set takes in a node, or its new labels, and reports whether that can change any plan. A node that does not run Linux is
// left out: its clients do not go where a plan says (policy.IsLinux).
func (c *Cells) Set(name string, labels map[string]string) (changed bool) {
	if !policy.IsLinux(labels) {
		return c.Remove(name)
	}
	demand, _ := policy.DemandOf(labels)
	old, known := c.nodes[name]
	current := node{cell: c.enter(labels), demand: demand}
	if known && old == current {
		return false
	}
	c.others = before{}
	// The new one first: a cell that is empty in between would be given up.
	c.cells[current.cell].add(tallyOf(demand))
	c.nodes[name] = current
	if known {
		c.leave(name, old)
	}
	own, here := c.nodes[c.self]
	switch {
	case name == c.self:
		if !known || old.cell != current.cell {
			c.before = c.countBefore(name, current.cell)
		}
	case here && own.cell == current.cell && name < c.self:
		c.before.add(tallyOf(demand))
	}
	return true
}

// Remove takes a node out, and reports whether it was there.
func (c *Cells) Remove(name string) (changed bool) {
	old, known := c.nodes[name]
	if known {
		c.others = before{}
		c.leave(name, old)
		delete(c.nodes, name)
	}
	return known
}

// Len returns the number of nodes.
func (c *Cells) Len() int { return len(c.nodes) }

// leave takes a node, as it was, out of its cell.
func (c *Cells) leave(name string, old node) {
	if own, here := c.nodes[c.self]; here && own.cell == old.cell && name < c.self {
		c.before.take(tallyOf(old.demand))
	}
	cell := &c.cells[old.cell]
	cell.take(tallyOf(old.demand))
	if cell.nodes > 0 {
		return
	}
	for k := range c.keys {
		c.words[k].drop(cell.values[k])
	}
	delete(c.index, cell.values)
	c.free = append(c.free, old.cell)
}

// enter returns the cell of a node with these labels. It may have no nodes yet.
func (c *Cells) enter(labels map[string]string) int32 {
	var values tuple
	for k, key := range c.keys {
		if key == policy.AnyNode || key == policy.Hostname {
			continue
		}
		if word, carried := labels[string(key)]; carried {
			values[k] = c.words[k].number(word)
		}
	}
	at, exists := c.index[values]
	if exists {
		return at
	}
	if last := len(c.free) - 1; last >= 0 {
		at, c.free = c.free[last], c.free[:last]
		c.cells[at] = cell{values: values}
	} else {
		at = int32(len(c.cells))
		c.cells = append(c.cells, cell{values: values})
	}
	c.index[values] = at
	for k := range c.keys {
		c.words[k].keep(values[k])
	}
	return at
}

// countBefore counts the nodes of a cell that come before a node by name.
func (c *Cells) countBefore(name string, cell int32) tally {
	var sum tally
	for other, node := range c.nodes {
		if node.cell == cell && other < name {
			sum.add(tallyOf(node.demand))
		}
	}
	return sum
}

// vocabulary gives each value of a key a small number, from 1 on, as long as a cell has it.
type vocabulary struct {
	numbers map[string]int32
	words   []string
	cells   []int32 // how many have the word
	free    []int32
}

// number returns a word's number. A new word is forgotten again unless a cell keeps it.
func (v *vocabulary) number(word string) int32 {
	if number, known := v.numbers[word]; known {
		return number
	}
	if v.numbers == nil {
		v.numbers = map[string]int32{}
	}
	last := len(v.free) - 1
	if last < 0 {
		v.words, v.cells = append(v.words, ""), append(v.cells, 0)
		v.free, last = append(v.free, int32(len(v.words))), 0
	}
	number := v.free[last]
	v.free = v.free[:last]
	v.words[number-1], v.numbers[word] = word, number
	return number
}

func (v *vocabulary) keep(number int32) {
	if number > 0 {
		v.cells[number-1]++
	}
}

func (v *vocabulary) drop(number int32) {
	if number == 0 {
		return
	}
	if v.cells[number-1]--; v.cells[number-1] == 0 {
		delete(v.numbers, v.words[number-1])
		v.words[number-1] = ""
		v.free = append(v.free, number)
	}
}
