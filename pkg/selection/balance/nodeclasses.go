package balance

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// NodeClasses are the Nodes of a cluster, classified by a list of topology keys: nodes with the same values of all keys
// but the hostname form a class. The cost of adding, removing or changing a node does not depend on the size of the
// cluster. Only if the node self moves to another class are all nodes iterated.
//
// Set and Remove must not be called concurrently with any other method, or while a Demand of these classes is in use.
type NodeClasses struct {
	keys  []policy.Key
	self  string
	nodes map[string]classifiedNode
	// classes is indexed by the numbers of classes, which never change. free has the numbers of classes without nodes, for
	// reuse.
	classes   []nodeClass
	free      []int32
	index     map[tuple]int32
	interners []interner // by key
	// selfPrefix has the sums over the nodes of self's class that come before self by name. prefixSums has such sums for
	// all nodes, and is built when those of another node are needed.
	selfPrefix sums
	prefixSums prefixSums
}

type classifiedNode struct {
	class  int32
	demand uint32
}

type nodeClass struct {
	values tuple
	sums
}

// tuple is a value of each key, as its interned number. 0 means no value, or a key that needs none. The zone may be an
// additional key.
type tuple [policy.MaxKeys + 1]int32

// NewNodeClasses returns the node classes of a cluster without nodes, for some keys, from the view of the node self.
// There are at most policy.MaxKeys + 1 keys, all different.
func NewNodeClasses(keys []policy.Key, self string) *NodeClasses {
	return &NodeClasses{
		keys:      slices.Clone(keys),
		self:      self,
		nodes:     map[string]classifiedNode{},
		index:     map[tuple]int32{},
		interners: make([]interner, len(keys)),
	}
}

// Set adds a node or updates its labels, and reports whether that can change any plan. It removes a node that does not
// run Linux: its clients do not follow a plan (policy.IsLinux).
func (c *NodeClasses) Set(name string, labels map[string]string) (changed bool) {
	if !policy.IsLinux(labels) {
		return c.Remove(name)
	}
	demand, _ := policy.DemandOf(labels)
	old, known := c.nodes[name]
	current := classifiedNode{class: c.classOf(labels), demand: demand}
	if known && old == current {
		return false
	}
	c.prefixSums = prefixSums{}
	// Add first: a class that is temporarily empty would be freed.
	c.classes[current.class].add(nodeSums(demand))
	c.nodes[name] = current
	if known {
		c.removeFrom(name, old)
	}
	selfNode, hasSelf := c.nodes[c.self]
	switch {
	case name == c.self:
		if !known || old.class != current.class {
			c.selfPrefix = c.computePrefix(name, current.class)
		}
	case hasSelf && selfNode.class == current.class && name < c.self:
		c.selfPrefix.add(nodeSums(demand))
	}
	return true
}

// Remove removes a node, and reports whether it existed.
func (c *NodeClasses) Remove(name string) (changed bool) {
	old, known := c.nodes[name]
	if known {
		c.prefixSums = prefixSums{}
		c.removeFrom(name, old)
		delete(c.nodes, name)
	}
	return known
}

// Len returns the number of nodes.
func (c *NodeClasses) Len() int { return len(c.nodes) }

// removeFrom removes a node, given its last state, from its class.
func (c *NodeClasses) removeFrom(name string, old classifiedNode) {
	if selfNode, hasSelf := c.nodes[c.self]; hasSelf && selfNode.class == old.class && name < c.self {
		c.selfPrefix.subtract(nodeSums(old.demand))
	}
	class := &c.classes[old.class]
	class.subtract(nodeSums(old.demand))
	if class.nodes > 0 {
		return
	}
	for k := range c.keys {
		c.interners[k].release(class.values[k])
	}
	delete(c.index, class.values)
	c.free = append(c.free, old.class)
}

// classOf returns the class of a node with these labels. A new class has no nodes yet.
func (c *NodeClasses) classOf(labels map[string]string) int32 {
	var values tuple
	for k, key := range c.keys {
		if key == policy.AnyNode || key == policy.Hostname {
			continue
		}
		if value, hasLabel := labels[string(key)]; hasLabel {
			values[k] = c.interners[k].number(value)
		}
	}
	index, exists := c.index[values]
	if exists {
		return index
	}
	if last := len(c.free) - 1; last >= 0 {
		index, c.free = c.free[last], c.free[:last]
		c.classes[index] = nodeClass{values: values}
	} else {
		index = int32(len(c.classes))
		c.classes = append(c.classes, nodeClass{values: values})
	}
	c.index[values] = index
	for k := range c.keys {
		c.interners[k].retain(values[k])
	}
	return index
}

// computePrefix returns the sums over the nodes of a class that come before a node by name.
func (c *NodeClasses) computePrefix(name string, class int32) sums {
	var sum sums
	for other, node := range c.nodes {
		if node.class == class && other < name {
			sum.add(nodeSums(node.demand))
		}
	}
	return sum
}

// interner numbers the values of a key, from 1. A value keeps its number while a node class has it.
type interner struct {
	numbers map[string]int32
	strings []string
	uses    []int32 // the number of node classes with the value
	free    []int32
}

// number returns the number of a value. If the value is new, the caller must create a class and retain its values.
func (in *interner) number(value string) int32 {
	if number, known := in.numbers[value]; known {
		return number
	}
	if in.numbers == nil {
		in.numbers = map[string]int32{}
	}
	last := len(in.free) - 1
	if last < 0 {
		in.strings, in.uses = append(in.strings, ""), append(in.uses, 0)
		in.free, last = append(in.free, int32(len(in.strings))), 0
	}
	number := in.free[last]
	in.free = in.free[:last]
	in.strings[number-1], in.numbers[value] = value, number
	return number
}

func (in *interner) retain(number int32) {
	if number > 0 {
		in.uses[number-1]++
	}
}

func (in *interner) release(number int32) {
	if number == 0 {
		return
	}
	if in.uses[number-1]--; in.uses[number-1] == 0 {
		delete(in.numbers, in.strings[number-1])
		in.strings[number-1] = ""
		in.free = append(in.free, number)
	}
}
