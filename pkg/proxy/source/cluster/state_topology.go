package cluster

import (
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// orphanPatience is how long a node is remembered whose slice is gone. A publisher deletes a slice that is empty, or
// whose nodes are in another one; but when the resource is removed, all slices go, and with them all that is known of
// nodes. By then it shows that nobody publishes, and Nodes are followed. To know of a node that is gone does no harm.
const orphanPatience = 3 * time.Minute

// orphans are nodes that no slice has any more since the same moment.
type orphans struct{ nodes []string }

// topology is what TopologySlices say, or the EndpointSlices over the proxies, as far as they are followed.
type topology struct {
	slices map[string]*model.TopologySlice
	// holders are the slices that have a node, sorted: the first one counts.
	holders map[string][]string
	// knowing is how many slices know of a label.
	knowing map[policy.Key]int
	// inVain are labels in use that nobody published while Services waited for it. None waits for them again.
	inVain map[policy.Key]bool
	// wait is who began to wait in the change that is being taken in, and orphaned are nodes that lost their slices in it.
	wait     *keyWait
	orphaned *orphans
	// orphans are the nodes that no slice has, each with those since the same moment.
	orphans map[string]*orphans
}

// keyWait are labels for which Services wait since the same moment.
type keyWait struct{ keys []policy.Key }

func newTopology() topology {
	return topology{
		slices: map[string]*model.TopologySlice{}, holders: map[string][]string{}, knowing: map[policy.Key]int{},
		inVain: map[policy.Key]bool{}, orphans: map[string]*orphans{},
	}
}

// put takes in a slice, or nil for one that is gone, and returns the nodes of which it says or said something.
func (t *topology) put(name string, now *model.TopologySlice) map[string]bool {
	concerned := map[string]bool{}
	if before := t.slices[name]; before != nil {
		for _, key := range before.Keys {
			if t.knowing[key]--; t.knowing[key] == 0 {
				delete(t.knowing, key)
			}
		}
		for node := range before.Nodes {
			concerned[node] = true
			holders := t.holders[node]
			at, _ := slices.BinarySearch(holders, name)
			if t.holders[node] = slices.Delete(holders, at, at+1); len(t.holders[node]) == 0 {
				delete(t.holders, node)
			}
		}
	}
	delete(t.slices, name)
	if now == nil {
		return concerned
	}
	t.slices[name] = now
	for _, key := range now.Keys {
		t.knowing[key]++
		delete(t.inVain, key)
	}
	for node := range now.Nodes {
		concerned[node] = true
		holders := t.holders[node]
		at, _ := slices.BinarySearch(holders, name)
		t.holders[node] = slices.Insert(holders, at, name)
	}
	return concerned
}

// node returns what counts of a node; nil if no slice has it.
func (t *topology) node(name string) *model.Node {
	holders := t.holders[name]
	if len(holders) == 0 {
		return nil
	}
	return t.slices[holders[0]].Nodes[name]
}

// isKnown reports whether all slices know of a label.
func (t *topology) isKnown(key policy.Key) bool { return t.knowing[key] == len(t.slices) }

// decideTopologySlice takes over what a slice says of nodes. This node speaks for itself.
func (s *state) decideTopologySlice(name string, now *model.TopologySlice) {
	for node := range s.topology.put(name, now) {
		s.describe(node, now != nil)
	}
	if s.knowsOthers {
		s.serveKnown()
	}
}

// describe takes over what the slices say of a node. If none has it any more, it goes at once if its slice says so, and is
// an orphan if the slice is gone. A node without a proxy is an orphan: mostly its proxy is replaced just now.
func (s *state) describe(name string, saysSo bool) {
	if name == s.own {
		return
	}
	node := s.topology.node(name)
	switch {
	case node != nil:
		delete(s.topology.orphans, name)
		s.put(convert.OtherNodes, &object{name: model.ObjectName{Name: name}, value: s.withDemand(node)})
	case saysSo && !slices.Contains(s.from, convert.ProxySlices):
		delete(s.topology.orphans, name)
		s.remove(convert.OtherNodes, model.ObjectName{Name: name})
	default:
		s.orphan(name)
	}
}

// withDemand returns a node with the labels that say what it asks, where other objects have those.
func (s *state) withDemand(node *model.Node) *model.Node {
	for _, kind := range []*convert.Kind{convert.NodesWithDemand, convert.ControlPlaneNodes} {
		if labelled, has := s.objects[kind][model.ObjectName{Name: node.Name}].value.(*model.Node); has {
			with := *node
			with.Labels = maps.Clone(node.Labels)
			maps.Copy(with.Labels, labelled.Labels)
			node = &with
		}
	}
	return node
}

// begin notes from which objects the other nodes are to be known. Until all of them are listed, what is known stays in
// force, and who waits goes on waiting.
func (s *state) begin(from *source) {
	s.forgetKinds()
	s.from, s.missing = nil, nil
	for _, one := range from.asked {
		s.from = append(s.from, one.kind)
	}
	s.missing = slices.Clone(s.from)
}

// forgetKinds forgets the objects from which nodes were known, and keeps the nodes.
func (s *state) forgetKinds() {
	for _, kind := range s.from {
		if kind != convert.OtherNodes {
			delete(s.objects, kind)
		}
	}
}

// list takes in that all objects of a kind are there. As soon as that is so of all from which the other nodes are to be
// known, they are.
func (s *state) list(kind *convert.Kind) {
	switch kind {
	case convert.OtherNodes, convert.TopologySlices, convert.ProxySlices, convert.NodesWithDemand, convert.ControlPlaneNodes:
	default:
		return
	}
	if at := slices.Index(s.missing, kind); at >= 0 {
		if s.missing = slices.Delete(s.missing, at, at+1); len(s.missing) > 0 {
			return
		}
		s.takeOver()
	}
	if kind != convert.OtherNodes {
		s.completeTopology()
	}
	if kind == convert.TopologySlices {
		s.waiveKeys()
	}
	s.knowOthers(true)
	s.serveKnown()
	for _, service := range s.held { // another source has what they wait for
		s.beginKeyWait(nodeKeys(service))
	}
}

// takeOver begins anew with what all objects say together, of which the state has decided nothing yet.
func (s *state) takeOver() {
	s.topology = newTopology()
	for _, kind := range s.from {
		for name, kept := range s.objects[kind] {
			if slice, is := kept.value.(*model.TopologySlice); is {
				s.topology.put(name.Name, slice)
			}
		}
	}
	for node := range s.topology.holders {
		s.describe(node, false)
	}
}

// completeTopology finds the nodes that no slice has, once all slices are known.
func (s *state) completeTopology() {
	for name := range s.objects[convert.OtherNodes] {
		if s.topology.node(name.Name) == nil {
			s.orphan(name.Name)
		}
	}
}

// orphan remembers a node that no slice has for a while.
func (s *state) orphan(name string) {
	if s.topology.orphans[name] != nil {
		return
	}
	if s.topology.orphaned == nil {
		s.topology.orphaned = &orphans{}
	}
	s.topology.orphaned.nodes = append(s.topology.orphaned.nodes, name)
	s.topology.orphans[name] = s.topology.orphaned
}

// takeOrphans returns the nodes that lost their slices since the last call; nil if none did.
func (s *state) takeOrphans() *orphans {
	orphaned := s.topology.orphaned
	s.topology.orphaned = nil
	return orphaned
}

// endOrphans forgets the nodes that lost their slices then and are in none again since.
func (s *state) endOrphans(orphaned *orphans) {
	for _, name := range orphaned.nodes {
		if s.topology.orphans[name] == orphaned {
			delete(s.topology.orphans, name)
			s.remove(convert.OtherNodes, model.ObjectName{Name: name})
		}
	}
}

// awaits reports whether a Service with these node keys waits: for the other nodes, or until a label that came into use
// is published of them.
func (s *state) awaits(keys []policy.Key) bool {
	if len(keys) == 0 {
		return false
	}
	if !s.knowsOthers {
		return !s.isOverdue
	}
	return slices.ContainsFunc(keys, s.isUnpublished)
}

// isUnpublished reports whether a label may yet be published.
func (s *state) isUnpublished(key policy.Key) bool {
	return len(s.topology.slices) > 0 && !s.topology.isKnown(key) && !s.topology.inVain[key]
}

// beginKeyWait notes that a Service waits for labels to be published.
func (s *state) beginKeyWait(keys []policy.Key) {
	if !s.knowsOthers {
		return
	}
	if s.topology.wait == nil {
		s.topology.wait = &keyWait{}
	}
	for _, key := range keys {
		if s.isUnpublished(key) {
			s.topology.wait.keys = append(s.topology.wait.keys, key)
		}
	}
}

// takeKeyWait returns what Services began to wait for since the last call; nil if none did.
func (s *state) takeKeyWait() *keyWait {
	wait := s.topology.wait
	s.topology.wait = nil
	return wait
}

// endKeyWait serves the Services that have waited for long enough.
func (s *state) endKeyWait(wait *keyWait) {
	for _, key := range wait.keys {
		if s.uses[key] > 0 && !s.topology.isKnown(key) {
			s.topology.inVain[key] = true
		}
	}
	s.serveKnown()
}

// serveKnown delivers the Services that wait for nothing any more.
func (s *state) serveKnown() {
	for name, service := range maps.Clone(s.held) {
		if !s.awaits(nodeKeys(service)) {
			delete(s.held, name)
			convert.Services.Note(&s.change, name, service)
		}
	}
}

// waiveKeys lets no Service wait for the labels that are in use now: what was in use when the slices were listed, and is
// not published, is not going to be.
func (s *state) waiveKeys() {
	for key := range s.uses {
		if !s.topology.isKnown(key) {
			s.topology.inVain[key] = true
		}
	}
}

// described is how many nodes the slices describe, and knownNodes how many are known, this one included.
func (s *state) described() int  { return len(s.topology.holders) }
func (s *state) knownNodes() int { return len(s.objects[convert.OtherNodes]) + 1 }
