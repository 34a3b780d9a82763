package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NodeClasses are the Nodes of a cluster as one list of topology keys sees them: nodes with the same values of all keys but
// the hostname are a cell. A node that comes, goes or changes costs no more in a large cluster than in a small one;
// only the own node, when it moves to another cell, costs a look at all nodes.
//
// It is not safe for use by several goroutines while it changes.
type NodeClasses struct {
	keys  []policy.Key
	self  string
	nodes map[string]node
	// cells are never moved: those without nodes wait in free to be used again.
	cells     []nodeClass
	free      []int32
	index     map[tuple]int32
	interners []interner // by key
	// before are the nodes of this node's cell that come before it by name. others has the same for all nodes, once somebody
	// asks about another one.
	before sums
	others before
}

type node struct {
	cell   int32
	demand uint32
}

type nodeClass struct {
	values tuple
	sums
}

// tuple is a value for each key, as its number in the key's vocabulary; 0: none, or the key needs none. Cells may have the zone
// as one more key.
type tuple [policy.MaxKeys + 1]int32

// NewNodeClasses returns the cells of a cluster without nodes, for some keys, as seen from a node. There are at most
// policy.MaxKeys keys plus one, all different.
func NewNodeClasses(keys []policy.Key, self string) *NodeClasses {
	return &NodeClasses{
		keys:      slices.Clone(keys),
		self:      self,
		nodes:     map[string]node{},
		index:     map[tuple]int32{},
		interners: make([]interner, len(keys)),
	}
}

// Set takes in a node, or its new labels, and reports whether that can change any plan. A node that does not run Linux is
// left out: its clients do not go where a plan says (policy.IsLinux).
func (c *NodeClasses) Set(name string, labels map[string]string) (changed bool) {
	if !policy.IsLinux(labels) {
		return c.Remove(name)
	}
	demand, _ := policy.DemandOf(labels)
	old, known := c.nodes[name]
	current := node{cell: c.classOf(labels), demand: demand}
	if known && old == current {
		return false
	}
	c.others = before{}
	// The new one first: a cell that is empty in between would be given up.
	c.cells[current.cell].add(nodeSums(demand))
	c.nodes[name] = current
	if known {
		c.removeFrom(name, old)
	}
	own, here := c.nodes[c.self]
	switch {
	case name == c.self:
		if !known || old.cell != current.cell {
			c.before = c.countBefore(name, current.cell)
		}
	case here && own.cell == current.cell && name < c.self:
		c.before.add(nodeSums(demand))
	}
	return true
}

// Remove takes a node out, and reports whether it was there.
func (c *NodeClasses) Remove(name string) (changed bool) {
	old, known := c.nodes[name]
	if known {
		c.others = before{}
		c.removeFrom(name, old)
		delete(c.nodes, name)
	}
	return known
}

// Len returns the number of nodes.
func (c *NodeClasses) Len() int { return len(c.nodes) }

// removeFrom takes a node, as it was, out of its cell.
func (c *NodeClasses) removeFrom(name string, old node) {
	if own, here := c.nodes[c.self]; here && own.cell == old.cell && name < c.self {
		c.before.subtract(nodeSums(old.demand))
	}
	cell := &c.cells[old.cell]
	cell.subtract(nodeSums(old.demand))
	if cell.nodes > 0 {
		return
	}
	for k := range c.keys {
		c.interners[k].drop(cell.values[k])
	}
	delete(c.index, cell.values)
	c.free = append(c.free, old.cell)
}

// classOf returns the cell of a node with these labels. It may have no nodes yet.
func (c *NodeClasses) classOf(labels map[string]string) int32 {
	var values tuple
	for k, key := range c.keys {
		if key == policy.AnyNode || key == policy.Hostname {
			continue
		}
		if word, carried := labels[string(key)]; carried {
			values[k] = c.interners[k].number(word)
		}
	}
	at, exists := c.index[values]
	if exists {
		return at
	}
	if last := len(c.free) - 1; last >= 0 {
		at, c.free = c.free[last], c.free[:last]
		c.cells[at] = nodeClass{values: values}
	} else {
		at = int32(len(c.cells))
		c.cells = append(c.cells, nodeClass{values: values})
	}
	c.index[values] = at
	for k := range c.keys {
		c.interners[k].keep(values[k])
	}
	return at
}

// countBefore counts the nodes of a cell that come before a node by name.
func (c *NodeClasses) countBefore(name string, cell int32) sums {
	var sum sums
	for other, node := range c.nodes {
		if node.cell == cell && other < name {
			sum.add(nodeSums(node.demand))
		}
	}
	return sum
}

// interner gives each value of a key a small number, from 1 on, as long as a cell has it.
type interner struct {
	numbers map[string]int32
	strings []string
	cells   []int32 // how many have the word
	free    []int32
}

// number returns a word's number. A new word is forgotten again unless a cell keeps it.
func (v *interner) number(word string) int32 {
	if number, known := v.numbers[word]; known {
		return number
	}
	if v.numbers == nil {
		v.numbers = map[string]int32{}
	}
	last := len(v.free) - 1
	if last < 0 {
		v.strings, v.cells = append(v.strings, ""), append(v.cells, 0)
		v.free, last = append(v.free, int32(len(v.strings))), 0
	}
	number := v.free[last]
	v.free = v.free[:last]
	v.strings[number-1], v.numbers[word] = word, number
	return number
}

func (v *interner) keep(number int32) {
	if number > 0 {
		v.cells[number-1]++
	}
}

func (v *interner) drop(number int32) {
	if number == 0 {
		return
	}
	if v.cells[number-1]--; v.cells[number-1] == 0 {
		delete(v.numbers, v.strings[number-1])
		v.strings[number-1] = ""
		v.free = append(v.free, number)
	}
}
