package balance

import (
	"iter"
	"maps"
)

// MaxDemand bounds the demand of one node; more counts as this much. With it a plan for 65,535 endpoints can include up
// to 260,000 such nodes. Labels stay far below (policy.MaxDemand), and so does the number of pods on a node.
const MaxDemand = 1 << 16

// Demand is each node's demand on one Service. It shares memory with the NodeClasses that it came from, and is invalid
// once they changed.
type Demand struct {
	cells *NodeClasses
	// named is the demand of the nodes that have any. If it is nil, see byZone.
	named  map[string]uint32
	byCell map[int32]sums // of the named nodes
	// before has the prefix sums of the named nodes.
	before *before
	// byZone is the demand of each node, by the number of its zone. If byZone is nil, too, nodes have the demand of their
	// labels. The field zone is the index of the zone among the keys.
	byZone []uint32
	zone   int
}

// ByLabels returns the demand that the nodes' labels set.
func (c *NodeClasses) ByLabels() Demand { return Demand{cells: c} }

// Named returns a demand for some nodes, by name. All others have none. Nodes that are not in the node classes are
// skipped, because their labels are unknown. The cost is proportional to the number of named nodes.
func (c *NodeClasses) Named(demand map[string]uint32) Demand {
	d := Demand{cells: c, named: demand}
	d.sumNamed()
	return d
}

// Source is the source of a demand.
type Source uint8

// The sources.
const (
	Labels Source = iota
	Clients
	Measurement
	Sources // the number of sources
)

// String returns the name of the source.
func (s Source) String() string { return [...]string{"labels", "clients", "measured"}[s] }

// Source returns the source of the demand.
func (d Demand) Source() Source {
	switch {
	case d.byZone != nil:
		return Measurement
	case d.named != nil:
		return Clients
	}
	return Labels
}

// sumNamed sums up the named nodes by their classes.
func (d *Demand) sumNamed() {
	d.byCell, d.before = map[int32]sums{}, &before{}
	for name := range d.named {
		if node, known := d.cells.nodes[name]; known {
			sum := d.byCell[node.cell]
			sum.add(nodeSums(d.of(name, node)))
			d.byCell[node.cell] = sum
		}
	}
}

// Cells returns the number of node classes.
func (d Demand) Cells() int { return len(d.cells.index) }

// Len returns the number of nodes that have a demand by name.
func (d Demand) Len() int { return len(d.named) }

// Of returns the demand of a node by its name, or 0 if the node is not in the node classes.
func (d Demand) Of(name string) uint32 {
	node, known := d.cells.nodes[name]
	if !known {
		return 0
	}
	return d.of(name, node)
}

// of returns the demand of a node.
func (d Demand) of(name string, node node) uint32 {
	switch {
	case d.byZone != nil:
		return d.each(node.cell)
	case d.named != nil:
		return min(d.named[name], MaxDemand)
	}
	return node.demand
}

// each returns the measured demand of each node of a class.
func (d Demand) each(cell int32) uint32 { return d.byZone[d.cells.cells[cell].values[d.zone]] }

// in returns the sums over the nodes of a class.
func (d Demand) in(cell int32) sums {
	return d.sumFor(d.cells.cells[cell].sums, d.byCell[cell], cell)
}

// sumFor returns the sums over some nodes of a class, given the sums by their labels and by their names.
func (d Demand) sumFor(labels, named sums, cell int32) sums {
	switch nodes := labels.nodes; {
	case d.byZone != nil:
		each := uint64(d.each(cell))
		return sums{nodes: nodes, demand: nodes * each, squares: nodes * each * each}
	case d.named != nil:
		return sums{nodes: nodes, demand: named.demand, squares: named.squares}
	}
	return labels
}

// beforeNode returns the sums over the nodes of a node's class that come before it by name. They are maintained for
// this node only; for other nodes, all nodes are sorted once.
func (d Demand) beforeNode(name string, cell int32) sums {
	sum := d.cells.before
	if name != d.cells.self {
		sum = d.cells.others.of(name, cell, maps.All(d.cells.nodes))
	}
	if d.named == nil {
		return d.sumFor(sum, sums{}, cell)
	}
	return d.sumFor(sum, d.before.of(name, cell, d.namedNodes()), cell)
}

// namedNodes yields the named nodes that are in the node classes, with their demand by name.
func (d Demand) namedNodes() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		for name := range d.named {
			if known, has := d.cells.nodes[name]; has && !yield(name, node{known.cell, d.of(name, known)}) {
				return
			}
		}
	}
}

// sums are the sums over some nodes.
type sums struct {
	nodes   uint64
	demand  uint64
	squares uint64 // the sum of each node's demand times itself
}

// nodeSums returns the sums for a single node.
func nodeSums(demand uint32) sums {
	return sums{nodes: 1, demand: uint64(demand), squares: uint64(demand) * uint64(demand)}
}

func (t *sums) add(other sums) {
	t.nodes += other.nodes
	t.demand += other.demand
	t.squares += other.squares
}

func (t *sums) subtract(other sums) {
	t.nodes -= other.nodes
	t.demand -= other.demand
	t.squares -= other.squares
}
