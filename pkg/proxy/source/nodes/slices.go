package nodes

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// sayings are what the objects of one source say about the other nodes: Nodes, TopologySlices, or the EndpointSlices
// over the proxies with the Nodes that complement them.
type sayings struct {
	// kinds are the kinds whose objects together say where nodes are, and missing are those whose list is still missing.
	kinds, missing []*convert.Kind

	singles map[string]*model.Node
	slices  map[model.ObjectName]*model.TopologySlice
	added   map[*convert.Kind]map[string]*model.Node
	// holders are the slices that have a node, sorted: the first one counts.
	holders map[string][]model.ObjectName
	// knowing is how many slices know of a label.
	knowing map[policy.Key]int
}

func newSayings(kinds []*convert.Kind) *sayings {
	return &sayings{
		kinds: kinds, missing: slices.Clone(kinds),
		singles: map[string]*model.Node{}, slices: map[model.ObjectName]*model.TopologySlice{},
		added:   map[*convert.Kind]map[string]*model.Node{},
		holders: map[string][]model.ObjectName{}, knowing: map[policy.Key]int{},
	}
}

// put takes in an object, or nil for one that is gone, and returns the nodes that it describes or described.
func (s *sayings) put(from *provider, name model.ObjectName, value any) map[string]bool {
	switch from.role {
	case several:
		slice, _ := value.(*model.TopologySlice)
		return s.putSlice(name, slice)
	case added:
		if s.added[from.kind] == nil {
			s.added[from.kind] = map[string]*model.Node{}
		}
		putNode(s.added[from.kind], name.Name, value)
		if len(s.holders[name.Name]) == 0 {
			return nil // its place is unknown
		}
	default:
		putNode(s.singles, name.Name, value)
	}
	return map[string]bool{name.Name: true}
}

func putNode(all map[string]*model.Node, name string, value any) {
	if node, _ := value.(*model.Node); node != nil {
		all[name] = node
		return
	}
	delete(all, name)
}

func (s *sayings) putSlice(name model.ObjectName, now *model.TopologySlice) map[string]bool {
	concerned := map[string]bool{}
	if before := s.slices[name]; before != nil {
		for _, key := range before.Keys {
			if s.knowing[key]--; s.knowing[key] == 0 {
				delete(s.knowing, key)
			}
		}
		for node := range before.Nodes {
			concerned[node] = true
			holders := s.holders[node]
			at, _ := slices.BinarySearchFunc(holders, name, model.ObjectName.Compare)
			if s.holders[node] = slices.Delete(holders, at, at+1); len(s.holders[node]) == 0 {
				delete(s.holders, node)
			}
		}
	}
	delete(s.slices, name)
	if now == nil {
		return concerned
	}
	s.slices[name] = now
	for _, key := range now.Keys {
		s.knowing[key]++
	}
	for node := range now.Nodes {
		concerned[node] = true
		holders := s.holders[node]
		at, _ := slices.BinarySearchFunc(holders, name, model.ObjectName.Compare)
		s.holders[node] = slices.Insert(holders, at, name)
	}
	return concerned
}

// node returns what counts for a node; nil if no object has it.
func (s *sayings) node(name string) *model.Node {
	if node := s.singles[name]; node != nil {
		return node
	}
	holders := s.holders[name]
	if len(holders) == 0 {
		return nil
	}
	node := s.slices[holders[0]].Nodes[name]
	for _, provider := range providers {
		if more := s.added[provider.kind][name]; more != nil {
			with := *node
			with.Labels = maps.Clone(node.Labels)
			maps.Copy(with.Labels, more.Labels)
			node = &with
		}
	}
	return node
}

// names yields the nodes that are described.
func (s *sayings) names(yield func(string) bool) {
	for name := range s.singles {
		if !yield(name) {
			return
		}
	}
	for name := range s.holders {
		if !yield(name) {
			return
		}
	}
}

// isKnown reports whether all slices know of a label.
func (s *sayings) isKnown(key policy.Key) bool { return s.knowing[key] == len(s.slices) }
