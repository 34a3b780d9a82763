package cluster

import (
	"maps"
	"reflect"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// nodeSet is the other nodes as one watch tells them.
type nodeSet struct {
	keys  keySet // of the labels that are kept; once the list is begun it only shrinks
	nodes map[string]*model.Node
	// begun is when the list was asked for; zero: not yet.
	begun time.Time
	// isOverdue: the list takes so long that nobody waits for it any more.
	isOverdue bool
}

func newNodeSet(keys keySet) *nodeSet { return &nodeSet{keys: keys, nodes: map[string]*model.Node{}} }

// isBegun reports whether the list was asked for.
func (n *nodeSet) isBegun() bool { return !n.begun.IsZero() }

// knows reports whether a Service that names the keys can be decided: the labels are known, or are not waited for.
func (s *state) knows(keys []policy.Key) bool {
	if len(keys) == 0 || s.nodes != nil && s.nodes.keys.hasAll(keys) {
		return true
	}
	return s.coming != nil && s.coming.isOverdue && s.coming.keys.hasAll(keys)
}

// followUse makes the watched nodes follow the keys in use, after a Service changed.
func (s *state) followUse() {
	if s.uses.isOther {
		s.chooseNodes()
	}
}

// chooseNodes decides which nodes are to be known.
//
//   - Without any key in use, no node is watched, and those that were are taken back.
//   - A key that is not kept so far needs a new list. The nodes in force stay until it is complete.
//   - A list that was begun goes on while a key in use waits for it, however long it takes: whoever names one key after the other
//     would otherwise keep everybody's list from ever being complete. Keys that come meanwhile have the next list.
//   - A key that is not in use any more is forgotten, so that its labels are listed anew when it comes back.
func (s *state) chooseNodes() {
	s.uses.isOther = false
	inUse := s.uses.keys()
	s.tellOwn()
	if len(inUse) == 0 {
		s.dropNodes()
		return
	}
	var known keySet
	if s.nodes != nil {
		s.nodes.forget(inUse)
		known = s.nodes.keys
	}
	if s.coming != nil {
		s.coming.forget(inUse)
		if s.coming.isBegun() && !s.coming.keys.isIn(known) {
			return
		}
	}
	switch {
	case inUse.isIn(known):
		s.coming = nil // the key that it was for is gone again
	case s.coming != nil && !s.coming.isBegun():
		s.coming.keys = inUse
	default:
		s.coming = newNodeSet(inUse)
	}
}

// forget drops the keys that are not in use.
func (n *nodeSet) forget(inUse keySet) {
	maps.DeleteFunc(n.keys, func(key policy.Key, _ bool) bool { return !inUse[key] })
}

// nodeSets returns the sets that must be watched now: at most one that is in force, and one that is coming.
func (s *state) nodeSets() []*nodeSet {
	var sets []*nodeSet
	if s.nodes != nil {
		sets = append(sets, s.nodes)
	}
	if s.coming != nil && s.coming.isBegun() {
		sets = append(sets, s.coming)
	}
	return sets
}

func (s *state) dropNodes() {
	if s.nodes != nil {
		for name := range s.nodes.nodes {
			s.noteNode(name, nil)
		}
	}
	s.nodes, s.coming = nil, nil
}

// putNode takes in another node as a watch tells it.
func (s *state) putNode(set *nodeSet, now *object[*model.Node]) {
	name := now.name.Name
	before := set.nodes[name]
	set.nodes[name] = now.value
	if set == s.nodes && (before == nil || !set.keys.equal(before, now.value)) {
		s.noteNode(name, now.value)
	}
}

func (s *state) nodeGone(set *nodeSet, name model.ObjectName) {
	delete(set.nodes, name.Name)
	if set == s.nodes {
		s.noteNode(name.Name, nil)
	}
}

// listed puts a set in force of which all nodes are known, and the Services that waited for it. All nodes are told again: their
// labels of keys that were out of use may be old. Keys that came while the set was listed have the next one.
func (s *state) listed(set *nodeSet) {
	if set == nil || set != s.coming {
		return
	}
	s.enforceNodes(set)
	s.chooseNodes()
}

// enforceNodes puts a set in force, and the Services that waited for it.
func (s *state) enforceNodes(set *nodeSet) {
	if s.nodes != nil {
		for name := range s.nodes.nodes {
			s.noteNode(name, nil)
		}
	}
	for name, node := range set.nodes {
		s.noteNode(name, node)
	}
	s.nodes, s.coming = set, nil
	s.admitHeld(never)
}

// putOwn takes in this node.
func (s *state) putOwn(_, now *object[*model.Node]) {
	if isGood, _ := s.judge(convert.NodeKind, now.name, now.refused); isGood {
		s.own = now.value
		s.tellOwn()
	}
}

func (s *state) ownGone(name model.ObjectName) {
	s.judge(convert.NodeKind, name, nil)
	s.own, s.told = nil, nil
	s.noteNode(name.Name, nil)
}

// tellOwn tells this node with the labels in use, if that differs from what was told. Hints read its zone.
func (s *state) tellOwn() {
	if s.own == nil {
		return
	}
	node := s.withLabelsInUse(s.own)
	if !reflect.DeepEqual(node, s.told) {
		s.told = node
		s.noteNode(node.Name, node)
	}
}

// withLabelsInUse returns a node as it would be told if it were this one.
func (s *state) withLabelsInUse(node *model.Node) *model.Node {
	keys := s.uses.keys()
	keys[policy.Zone] = true
	told := *node
	told.Labels = keys.of(node.Labels)
	return &told
}

func (s *state) noteNode(name string, node *model.Node) {
	if s.change.Nodes == nil {
		s.change.Nodes = map[string]*model.Node{}
	}
	s.change.Nodes[name] = node
}
