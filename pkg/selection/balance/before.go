package balance

import (
	"cmp"
	"iter"
	"slices"
	"sync"
)

// before has, for each node class, its nodes by name with the sums of all nodes before each. It is built on first use
// for a node whose sum is not maintained. Building takes the time of sorting all nodes, and then serves any node.
type before struct {
	once   sync.Once
	byCell map[int32]*row
}

// row has nodes of one class by name. sums[i] is the sum of the first i.
type row struct {
	names []string
	sums  []sums
}

// of returns the sum of the nodes of a class that come before a name. all yields every node, with its class and demand.
func (b *before) of(name string, cell int32, all iter.Seq2[string, node]) sums {
	b.once.Do(func() { b.byCell = rowsOf(all) })
	row := b.byCell[cell]
	if row == nil {
		return sums{}
	}
	at, _ := slices.BinarySearch(row.names, name)
	return row.sums[at]
}

func rowsOf(all iter.Seq2[string, node]) map[int32]*row {
	type named struct {
		name string
		node
	}
	var sorted []named
	for name, node := range all {
		sorted = append(sorted, named{name, node})
	}
	slices.SortFunc(sorted, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	rows := map[int32]*row{}
	for _, next := range sorted {
		r := rows[next.cell]
		if r == nil {
			r = &row{sums: []sums{{}}}
			rows[next.cell] = r
		}
		sum := r.sums[len(r.sums)-1]
		sum.add(nodeSums(next.demand))
		r.names, r.sums = append(r.names, next.name), append(r.sums, sum)
	}
	return rows
}
