package topologypublisher

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
)

// content is the content of a TopologySlice without its metadata. Keys and nodes are sorted.
type content struct {
	keys  []string
	nodes []v1alpha1.NodeTopology
}

// write is a change of one slice. Writes are performed in order, so that no node is missing in between; a node that
// moves is in two slices for a moment.
type write struct {
	name    string   // empty for a new slice
	content *content // nil for a slice to delete
}

// plan returns the writes after which the slices together contain these nodes (labels by name) with these keys, at most
// limit nodes per slice. It returns none if they do already. keys must be sorted.
//
// A node stays in its slice. New nodes go into slices that are written anyway, then into the fullest slices with room,
// then into new ones. Two slices are merged if the result is at most half full. So there are at most four times as many
// slices as needed, and the number of writes is proportional to the changes.
func plan(current map[string]content, keys []string, nodes map[string]map[string]string, limit int) []write {
	p := planner{limit: limit, keys: keys, nodes: nodes}
	p.assign(p.keep(current))
	p.merge()
	return p.writes()
}

type planner struct {
	limit int
	keys  []string
	nodes map[string]map[string]string

	bins []*bin
}

// bin is a slice during planning.
type bin struct {
	name      string // empty for a new slice
	nodeNames []string
	isChanged bool
	hasGrown  bool // it gets a node, so it is written before those that lose one
}

// keep assigns each node to the first slice that contains it, and returns the nodes that are in none. A slice above the
// limit loses some.
func (p *planner) keep(current map[string]content) (unassigned []string) {
	kept := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		b := &bin{name: name, isChanged: !slices.Equal(current[name].keys, p.keys)}
		for _, node := range current[name].nodes {
			labels, exists := p.nodes[node.Name]
			if !exists || kept[node.Name] || len(b.nodeNames) == p.limit {
				b.isChanged = true
				continue
			}
			kept[node.Name] = true
			b.nodeNames = append(b.nodeNames, node.Name)
			b.isChanged = b.isChanged || !maps.Equal(node.Labels, labels)
		}
		p.bins = append(p.bins, b)
	}
	for name := range p.nodes {
		if !kept[name] {
			unassigned = append(unassigned, name)
		}
	}
	slices.Sort(unassigned)
	return unassigned
}

// assign assigns nodes to slices.
func (p *planner) assign(unassigned []string) {
	byUse := slices.Clone(p.bins)
	slices.SortStableFunc(byUse, func(a, b *bin) int {
		if a.isChanged != b.isChanged {
			if a.isChanged {
				return -1
			}
			return 1
		}
		return cmp.Compare(len(b.nodeNames), len(a.nodeNames))
	})
	for _, b := range byUse {
		unassigned = p.fill(unassigned, b)
	}
	for len(unassigned) > 0 {
		b := &bin{}
		unassigned = p.fill(unassigned, b)
		p.bins = append(p.bins, b)
	}
}

// fill adds nodes to a slice until it is full, and returns the rest.
func (p *planner) fill(unassigned []string, b *bin) []string {
	count := min(len(unassigned), p.limit-len(b.nodeNames))
	if count == 0 {
		return unassigned
	}
	b.nodeNames = append(b.nodeNames, unassigned[:count]...)
	b.isChanged, b.hasGrown = true, true
	return unassigned[count:]
}

// merge empties the smallest slices into the next larger ones, while the result is at most half full.
func (p *planner) merge() {
	bySize := slices.Clone(p.bins)
	slices.SortStableFunc(bySize, func(a, b *bin) int { return cmp.Compare(len(a.nodeNames), len(b.nodeNames)) })
	for i, b := range bySize[:max(len(bySize)-1, 0)] {
		next := bySize[i+1]
		if len(b.nodeNames)+len(next.nodeNames) > p.limit/2 {
			return
		}
		if len(b.nodeNames) > 0 {
			next.nodeNames = append(next.nodeNames, b.nodeNames...)
			next.isChanged, next.hasGrown = true, true
		}
		b.nodeNames, b.isChanged = nil, true
	}
}

// writes returns the writes in order: slices that grow, then those that only lose or change nodes, then deletions.
func (p *planner) writes() []write {
	var grown, changed, deleted []write
	for _, b := range p.bins {
		switch {
		case len(b.nodeNames) == 0:
			if b.name != "" {
				deleted = append(deleted, write{name: b.name})
			}
		case b.hasGrown:
			grown = append(grown, write{name: b.name, content: p.contentWith(b.nodeNames)})
		case b.isChanged:
			changed = append(changed, write{name: b.name, content: p.contentWith(b.nodeNames)})
		}
	}
	return slices.Concat(grown, changed, deleted)
}

func (p *planner) contentWith(names []string) *content {
	slices.Sort(names)
	described := &content{keys: p.keys}
	for _, name := range names {
		described.nodes = append(described.nodes, v1alpha1.NodeTopology{Name: name, Labels: p.nodes[name]})
	}
	return described
}
