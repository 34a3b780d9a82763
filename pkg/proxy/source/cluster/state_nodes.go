package cluster

import (
	"maps"
	"reflect"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// needsOthers reports whether a Service names a label for which the other nodes must be known.
func (s *state) needsOthers() bool { return len(s.keys) > 0 }

// needsLabels reports whether a Service names a label that says neither the zone of a node nor what it asks.
func (s *state) needsLabels() bool {
	for key := range s.uses {
		if key != policy.Zone && !slices.Contains(policy.DemandLabels[:], key) {
			return true
		}
	}
	return false
}

// waitNoLonger delivers the Services that wait for the other nodes, and returns how many. Until the nodes are listed,
// or dropped, no other one waits.
func (s *state) waitNoLonger() int {
	s.isOverdue = true
	return s.serveHeld()
}

// dropOthers takes the other nodes back, unless a Service needs them again. It reports whether it has.
func (s *state) dropOthers() bool {
	if s.needsOthers() {
		return false
	}
	s.forgetKinds()
	s.from, s.missing, s.topology = nil, nil, newTopology()
	for name := range s.objects[convert.OtherNodes] {
		s.remove(convert.OtherNodes, name)
	}
	s.knowOthers(false)
	s.isOverdue = false
	return true
}

// knowOthers delivers whether all nodes are known, if that is news.
func (s *state) knowOthers(known bool) {
	if s.knowsOthers != known {
		s.knowsOthers, s.change.AllNodes = known, &known
	}
}

// decideNode delivers a node with the labels in use, if that differs from what was delivered. A label that went out of
// use may be old until it is used again.
func (s *state) decideNode(kind *convert.Kind, name model.ObjectName, node *model.Node) {
	if node == nil {
		delete(s.nodes, name.Name)
		kind.Note(&s.change, name, nil)
		return
	}
	used := *node
	used.Labels = map[string]string{} // never nil: a node without any of them is known nonetheless
	s.copyUsed(kind, used.Labels, node.Labels)
	if before := s.nodes[name.Name]; before != nil {
		known := *before
		known.Labels = map[string]string{}
		s.copyUsed(kind, known.Labels, before.Labels)
		if reflect.DeepEqual(&known, &used) {
			return
		}
	}
	s.nodes[name.Name] = &used
	kind.Note(&s.change, name, &used)
}

// copyUsed copies the labels that Services name, and of this node the zone, which hints read; or all.
func (s *state) copyUsed(kind *convert.Kind, to, from map[string]string) {
	if s.allLabels {
		maps.Copy(to, from)
		return
	}
	take := func(key policy.Key) {
		if value, ok := from[string(key)]; ok {
			to[string(key)] = value
		}
	}
	for key := range s.uses {
		take(key)
	}
	if kind == convert.Nodes {
		take(policy.Zone)
	}
}

// decideNodes decides about all nodes anew, after a label came into use.
func (s *state) decideNodes() {
	for _, kind := range []*convert.Kind{convert.Nodes, convert.OtherNodes} {
		for name, kept := range s.objects[kind] {
			if node, isGood := kept.value.(*model.Node); isGood {
				s.decideNode(kind, name, node)
			}
		}
	}
}
