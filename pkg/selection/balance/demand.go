package balance

import (
	"iter"
	"maps"
)

// MaxDemand bounds the demand of one node; higher demand counts as MaxDemand. A plan for 65,535 endpoints can include
// up to 260,000 nodes with that demand. Labels set much less (policy.MaxDemand), and a node has far fewer pods.
const MaxDemand = 1 << 16

// Demand is each node's demand on one Service. It shares memory with the NodeClasses that it came from, and is invalid
// once they change.
type Demand struct {
	nodeClasses *NodeClasses
	// named is the demand by node name; all other nodes have none. If it is nil, byZone applies.
	named   map[string]uint32
	byClass map[int32]sums // the sums over the named nodes, by node class
	// prefixSums has the prefix sums of the named nodes.
	prefixSums *prefixSums
	// byZone is the demand of each node, by the number of its zone. If byZone is nil, too, nodes have the demand of their
	// labels. openByZone is the same for open connections; nil if they are distributed like new ones. The field zone is the
	// index of policy.Zone among the keys.
	byZone, openByZone []uint32
	zone               int
	// maxEffectiveNodes bounds effectiveNodes, because the nodes of a zone may not have equal demand; 0 means no bound.
	maxEffectiveNodes uint64
}

// kind is a kind of demand. A plan bounds the load of each.
type kind uint8

// The kinds. Most demands have only the first one.
const (
	newConnections kind = iota
	openConnections
	numKinds
)

// kinds returns the number of kinds of the demand.
func (d Demand) kinds() kind {
	if d.openByZone != nil {
		return numKinds
	}
	return newConnections + 1
}

// ByLabels returns the demand that the nodes' labels set.
func (c *NodeClasses) ByLabels() Demand { return Demand{nodeClasses: c} }

// Named returns a demand for some nodes, by name. All others have none. Nodes that are not in the node classes are
// skipped, because their labels are unknown. The cost is proportional to the number of named nodes.
func (c *NodeClasses) Named(demand map[string]uint32) Demand {
	d := Demand{nodeClasses: c, named: demand}
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
	NumSources // the number of sources
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
	d.byClass, d.prefixSums = map[int32]sums{}, &prefixSums{}
	for name := range d.named {
		if node, known := d.nodeClasses.nodes[name]; known {
			sum := d.byClass[node.class]
			sum.add(d.nodeSums(name, node))
			d.byClass[node.class] = sum
		}
	}
}

// NumClasses returns the number of node classes.
func (d Demand) NumClasses() int { return len(d.nodeClasses.index) }

// Len returns the number of nodes that have a demand by name.
func (d Demand) Len() int { return len(d.named) }

// OfNode returns the demand of a node by its name, or 0 if the node is not in the node classes.
func (d Demand) OfNode(name string) uint32 {
	node, known := d.nodeClasses.nodes[name]
	if !known {
		return 0
	}
	return d.demandOf(name, node)
}

// demandOf returns the demand of a node.
func (d Demand) demandOf(name string, node classifiedNode) uint32 {
	switch {
	case d.byZone != nil:
		return d.measuredDemand(node.class)
	case d.named != nil:
		return min(d.named[name], MaxDemand)
	}
	return node.demand
}

// measuredDemand returns the measured demand of each node of a class.
func (d Demand) measuredDemand(class int32) uint32 {
	return d.byZone[d.nodeClasses.classes[class].values[d.zone]]
}

// measuredOpen returns the measured number of open connections of each node of a class, in proportion.
func (d Demand) measuredOpen(class int32) uint32 {
	if d.openByZone == nil {
		return 0
	}
	return d.openByZone[d.nodeClasses.classes[class].values[d.zone]]
}

// nodeSums returns the sums for a single node.
func (d Demand) nodeSums(name string, node classifiedNode) sums {
	sum := nodeSums(d.demandOf(name, node))
	if d.byZone != nil {
		sum.open = uint64(d.measuredOpen(node.class))
	}
	return sum
}

// classSums returns the sums over the nodes of a class.
func (d Demand) classSums(class int32) sums {
	return d.sumFor(d.nodeClasses.classes[class].sums, d.byClass[class], class)
}

// sumFor returns the sums over some nodes of a class, given the sums of their demand by labels and of that by name.
func (d Demand) sumFor(labels, named sums, class int32) sums {
	switch nodes := labels.nodes; {
	case d.byZone != nil:
		perNode := uint64(d.measuredDemand(class))
		return sums{
			nodes: nodes, demand: nodes * perNode, squares: nodes * perNode * perNode, open: nodes * uint64(d.measuredOpen(class)),
		}
	case d.named != nil:
		return sums{nodes: nodes, demand: named.demand, squares: named.squares}
	}
	return labels
}

// sumBefore returns the sums over the nodes of a node's class that come before it by name. NodeClasses keeps them up to
// date for its own node; the first call for another node sorts all nodes.
func (d Demand) sumBefore(name string, class int32) sums {
	sum := d.nodeClasses.selfPrefix
	if name != d.nodeClasses.self {
		sum = d.nodeClasses.prefixSums.sumBefore(name, class, maps.All(d.nodeClasses.nodes))
	}
	if d.named == nil {
		return d.sumFor(sum, sums{}, class)
	}
	return d.sumFor(sum, d.prefixSums.sumBefore(name, class, d.namedNodes()), class)
}

// namedNodes yields the named nodes that are in the node classes, with their demand by name.
func (d Demand) namedNodes() iter.Seq2[string, classifiedNode] {
	return func(yield func(string, classifiedNode) bool) {
		for name := range d.named {
			if stored, exists := d.nodeClasses.nodes[name]; exists && !yield(name, classifiedNode{stored.class, d.demandOf(name, stored)}) {
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
	open    uint64 // the demand of open connections; 0 if they are distributed like new ones
}

// of returns the demand of a kind.
func (s *sums) of(k kind) uint64 {
	if k == openConnections {
		return s.open
	}
	return s.demand
}

// nodeSums returns the sums for a single node.
func nodeSums(demand uint32) sums {
	return sums{nodes: 1, demand: uint64(demand), squares: uint64(demand) * uint64(demand)}
}

func (s *sums) add(other sums) {
	s.nodes += other.nodes
	s.demand += other.demand
	s.squares += other.squares
	s.open += other.open
}

func (s *sums) subtract(other sums) {
	s.nodes -= other.nodes
	s.demand -= other.demand
	s.squares -= other.squares
	s.open -= other.open
}
