package balance

import (
	"cmp"
	"iter"
	"slices"
	"sync"
)

// prefixSums has, for each node class, its nodes sorted by name, with the sums over all nodes before each. It is built
// at the first lookup: that sorts all nodes, and later lookups of any node only search.
type prefixSums struct {
	once    sync.Once
	byClass map[int32]*row
}

// row has the nodes of one class, sorted by name. sums[i] has the sums over the first i nodes.
type row struct {
	names []string
	sums  []sums
}

// sumBefore returns the sums over the nodes of a class that come before a name. all yields every node by name, with its
// class and demand.
func (p *prefixSums) sumBefore(name string, class int32, all iter.Seq2[string, classifiedNode]) sums {
	p.once.Do(func() { p.byClass = rowsOf(all) })
	sorted := p.byClass[class]
	if sorted == nil {
		return sums{}
	}
	index, _ := slices.BinarySearch(sorted.names, name)
	return sorted.sums[index]
}

func rowsOf(all iter.Seq2[string, classifiedNode]) map[int32]*row {
	type named struct {
		name string
		classifiedNode
	}
	var sorted []named
	for name, node := range all {
		sorted = append(sorted, named{name, node})
	}
	slices.SortFunc(sorted, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	rows := map[int32]*row{}
	for _, current := range sorted {
		r := rows[current.class]
		if r == nil {
			r = &row{sums: []sums{{}}}
			rows[current.class] = r
		}
		sum := r.sums[len(r.sums)-1]
		sum.add(nodeSums(current.demand))
		r.names, r.sums = append(r.names, current.name), append(r.sums, sum)
	}
	return rows
}
