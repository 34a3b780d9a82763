package nodes

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// sourceState holds the objects of one source of other nodes' labels: Nodes, TopologySlices, or the EndpointSlices over
// the proxies with the Nodes that complement them.
type sourceState struct {
	// kinds are the kinds of the source, and missing are those that are not listed yet.
	kinds, missing []*convert.Kind

	nodes       map[string]*model.Node
	slices      map[model.ObjectName]*model.TopologySlice
	supplements map[*convert.Kind]map[string]*model.Node
	// slicesByNode are the slices that describe a node, sorted: the first one counts.
	slicesByNode map[string][]model.ObjectName
	// slicesByKey is the number of slices that contain a label.
	slicesByKey map[policy.Key]int
}

func newSourceState(kinds []*convert.Kind) *sourceState {
	return &sourceState{
		kinds: kinds, missing: slices.Clone(kinds),
		nodes: map[string]*model.Node{}, slices: map[model.ObjectName]*model.TopologySlice{},
		supplements:  map[*convert.Kind]map[string]*model.Node{},
		slicesByNode: map[string][]model.ObjectName{}, slicesByKey: map[policy.Key]int{},
	}
}

// update processes an object, nil if it was deleted, and returns the nodes that it describes or described.
func (s *sourceState) update(source *provider, name model.ObjectName, value any) map[string]bool {
	switch source.role {
	case nodeSlice:
		slice, _ := value.(*model.TopologySlice)
		return s.updateSlice(name, slice)
	case supplement:
		if s.supplements[source.kind] == nil {
			s.supplements[source.kind] = map[string]*model.Node{}
		}
		putNode(s.supplements[source.kind], name.Name, value)
		if len(s.slicesByNode[name.Name]) == 0 {
			return nil // no slice describes the node
		}
	default:
		putNode(s.nodes, name.Name, value)
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

func (s *sourceState) updateSlice(name model.ObjectName, slice *model.TopologySlice) map[string]bool {
	affected := map[string]bool{}
	if before := s.slices[name]; before != nil {
		for _, key := range before.Keys {
			if s.slicesByKey[key]--; s.slicesByKey[key] == 0 {
				delete(s.slicesByKey, key)
			}
		}
		for node := range before.Nodes {
			affected[node] = true
			sliceNames := s.slicesByNode[node]
			at, _ := slices.BinarySearchFunc(sliceNames, name, model.ObjectName.Compare)
			if s.slicesByNode[node] = slices.Delete(sliceNames, at, at+1); len(s.slicesByNode[node]) == 0 {
				delete(s.slicesByNode, node)
			}
		}
	}
	delete(s.slices, name)
	if slice == nil {
		return affected
	}
	s.slices[name] = slice
	for _, key := range slice.Keys {
		s.slicesByKey[key]++
	}
	for node := range slice.Nodes {
		affected[node] = true
		sliceNames := s.slicesByNode[node]
		at, _ := slices.BinarySearchFunc(sliceNames, name, model.ObjectName.Compare)
		s.slicesByNode[node] = slices.Insert(sliceNames, at, name)
	}
	return affected
}

// node returns the combined description of a node; nil if no object describes it.
func (s *sourceState) node(name string) *model.Node {
	if node := s.nodes[name]; node != nil {
		return node
	}
	sliceNames := s.slicesByNode[name]
	if len(sliceNames) == 0 {
		return nil
	}
	node := s.slices[sliceNames[0]].Nodes[name]
	for _, provider := range providers {
		if extra := s.supplements[provider.kind][name]; extra != nil {
			merged := *node
			merged.Labels = maps.Clone(node.Labels)
			maps.Copy(merged.Labels, extra.Labels)
			node = &merged
		}
	}
	return node
}

// names yields the names of the described nodes.
func (s *sourceState) names(yield func(string) bool) {
	for name := range s.nodes {
		if !yield(name) {
			return
		}
	}
	for name := range s.slicesByNode {
		if !yield(name) {
			return
		}
	}
}

// isPublishedKey reports whether all slices contain a label.
func (s *sourceState) isPublishedKey(key policy.Key) bool { return s.slicesByKey[key] == len(s.slices) }
