package nodes

import (
	"reflect"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/deadline"
)

// Store is the state of the nodes. It is not safe for concurrent use.
type Store struct {
	self string // the name of this node
	// AllLabels selects whether nodes are delivered with all of their labels, instead of those in use.
	AllLabels bool

	// current is the state of the active source. pending is the state of its successor, which becomes active as soon as it
	// is complete; nil without a successor.
	current, pending *sourceState
	// fullNodes are the Nodes that were read in full, and peers the other nodes.
	fullNodes, peers map[string]*model.Node
	// delivered are the nodes as they were last delivered.
	delivered map[string]*model.Node

	labelGate
	demotionTracker
	timers deadline.Queue[timer] // the deadlines of all parts
	change model.Change          // not delivered yet: nodes, and whether all are known
}

// timer identifies a deadline by its kind and a name.
type timer struct {
	kind timerKind
	name string
}

type timerKind int

const (
	listTimeout     timerKind = iota // of the lists: Services stop waiting for them
	keyTimeout                       // of a label: Services stop waiting for it
	measuredTimeout                  // of measured demand: Services stop waiting for it
	nodeExpiry                       // of a node that no source describes any more
	demotionExpiry                   // of the demotions of a node
	trackingExpiry                   // of the demotions of a deleted node, or of an existence check
)

// NewStore returns an empty Store for the node with the name self.
func NewStore(self string) *Store {
	s := &Store{
		self: self, current: newSourceState(nil),
		fullNodes: map[string]*model.Node{}, peers: map[string]*model.Node{}, delivered: map[string]*model.Node{},
	}
	s.demotionTracker = newDemotionTracker(&s.timers)
	s.labelGate = newLabelGate(&s.timers, func(key policy.Key) bool { return s.current.isPublishedKey(key) })
	return s
}

// SetServiceKeys sets the labels of other nodes that a Service names, and whether it is planned with measured demand.
// It reports whether the Service has to wait for them.
func (s *Store) SetServiceKeys(service model.ObjectName, keys []policy.Key, isMeasured bool, now time.Time) (isBlocked bool) {
	if delete(s.measured, service); isMeasured {
		s.measured[service] = true
	}
	if s.setKeys(service, keys) { // a label that may not have been delivered
		for name := range s.fullNodes {
			s.publish(name)
		}
		for name := range s.peers {
			s.publish(name)
		}
	}
	return s.blockIfNeeded(service, now)
}

// Update processes an object of a kind that describes nodes; a nil value means that it was deleted.
func (s *Store) Update(kind *convert.Kind, name model.ObjectName, value any, now time.Time) {
	source := providerOf(kind)
	switch {
	case source.role == fullNode:
		putNode(s.fullNodes, name.Name, value)
		s.publish(name.Name)
	case source.role == demotionLabel:
		node, _ := value.(*model.Node)
		s.observeLabels(source, name.Name, node, now)
	case s.pending != nil && slices.Contains(s.pending.kinds, kind):
		s.pending.update(source, name, value) // evaluated when all lists are complete
	default:
		if slice, _ := value.(*model.TopologySlice); slice != nil {
			for _, key := range slice.Keys {
				delete(s.timedOut, key)
			}
		}
		isOmitted := source.omitsDeleted && (value != nil || source.role == peerNode)
		for node := range s.current.update(source, name, value) {
			s.refresh(node, isOmitted, now)
		}
		s.unblock()
	}
}

// UpdateFull processes a complete Node, and reads all of its demotion labels; nil means that it was deleted. Then
// existence checks concern only nodes that were deleted.
func (s *Store) UpdateFull(name string, node *model.Node, now time.Time) {
	var value any
	if node != nil {
		value = node
	}
	s.Update(convert.Nodes, model.ObjectName{Name: name}, value, now)
	for i := range providers {
		if providers[i].role == demotionLabel {
			s.observeLabels(&providers[i], name, node, now)
		}
	}
}

// refresh updates a node from its source. If the source no longer describes it, the node is removed at once if that
// means that it was deleted; otherwise after NodeRetention.
func (s *Store) refresh(name string, isOmitted bool, now time.Time) {
	if name == s.self {
		return // its own Node object describes it
	}
	node, expiry := s.current.node(name), timer{nodeExpiry, name}
	switch {
	case node != nil:
		s.peers[name] = node
	case isOmitted:
		delete(s.peers, name)
	case s.peers[name] != nil:
		s.timers.Schedule(expiry, now.Add(NodeRetention))
		return
	}
	s.timers.Cancel(expiry)
	s.publish(name)
}

// publish delivers a node with the labels in use, if that differs from the last delivery. A label that is no longer in
// use may be outdated until it is used again.
func (s *Store) publish(name string) {
	node, before := s.peers[name], s.delivered[name]
	if full := s.fullNodes[name]; full != nil {
		node = full
	}
	if node == nil {
		if before != nil {
			delete(s.delivered, name)
			s.recordChange(name, nil)
		}
		return
	}
	used := s.withUsedLabels(node)
	if before != nil && reflect.DeepEqual(s.withUsedLabels(before), used) {
		return
	}
	s.delivered[name] = used
	s.recordChange(name, used)
}

// withUsedLabels returns a node with the labels that Services name; for this node also with the zone, which hints need,
// and the operating system. With AllLabels it returns all labels.
func (s *Store) withUsedLabels(node *model.Node) *model.Node {
	if s.AllLabels {
		return node
	}
	used := *node
	used.Labels = map[string]string{} // never nil: a node without any of them is still known
	add := func(key policy.Key) {
		if value, has := node.Labels[string(key)]; has {
			used.Labels[string(key)] = value
		}
	}
	for key := range s.uses {
		add(key)
	}
	if s.fullNodes[node.Name] != nil {
		add(policy.Zone)
		add(policy.OSLabel)
	}
	return &used
}

func (s *Store) recordChange(name string, node *model.Node) {
	if s.change.Nodes == nil {
		s.change.Nodes = map[string]*model.Node{}
	}
	s.change.Nodes[name] = node
}

// SwitchSource sets the kinds of objects that will describe the other nodes. Until all of them are listed, the last
// known state stays active, and blocked Services keep waiting.
func (s *Store) SwitchSource(kinds ...*convert.Kind) { s.pending = newSourceState(kinds) }

// OnListed records that all objects of a kind are listed. Once all kinds of a source are listed, all nodes are known.
func (s *Store) OnListed(kind *convert.Kind, now time.Time) {
	source := providerOf(kind)
	if !IsPeerSource(kind) {
		return
	}
	if s.pending != nil {
		if at := slices.Index(s.pending.missing, kind); at >= 0 {
			s.pending.missing = slices.Delete(s.pending.missing, at, at+1)
		}
		if len(s.pending.missing) > 0 {
			return
		}
		s.activatePending(now)
	}
	for name := range s.peers {
		s.refresh(name, source.omitsDeleted && source.role == peerNode, now)
	}
	if source.listIsFinal {
		s.timeOutUnknownKeys()
	}
	s.SetAllKnown(true)
	s.startAllKeyTimeouts(now) // the other source has the labels that they wait for
}

// activatePending switches to the pending source. All of its objects are complete before any node is updated.
func (s *Store) activatePending(now time.Time) {
	s.current, s.pending = s.pending, nil
	clear(s.timedOut)
	for name := range s.peers {
		s.timers.Cancel(timer{nodeExpiry, name})
	}
	for name := range s.current.names {
		s.refresh(name, false, now)
	}
}

// SetAllKnown sets whether all nodes are known.
func (s *Store) SetAllKnown(known bool) {
	if s.peerNodes.isKnown != known {
		s.change.AllNodes = &known
	}
	s.setKnown(known)
}

// DropPeers drops the other nodes unless a Service needs them again. It reports whether it did.
func (s *Store) DropPeers() bool {
	if s.NeedsPeers() {
		return false
	}
	s.current, s.pending = newSourceState(nil), nil
	for name := range s.peers {
		delete(s.peers, name)
		s.timers.Cancel(timer{nodeExpiry, name})
		s.publish(name)
	}
	s.SetAllKnown(false)
	s.reset()
	return true
}

// SliceNodeCount returns the number of nodes that slices describe.
func (s *Store) SliceNodeCount() int { return len(s.current.slicesByNode) }

// NodeCount returns the number of known nodes, including this one.
func (s *Store) NodeCount() int { return len(s.peers) + 1 }

// Next returns the next deadline, and whether there is one.
func (s *Store) Next() (at time.Time, ok bool) { return s.timers.Earliest() }

// Expire processes the expired deadlines. It returns the Services that timed out waiting for lists, or nil, and the
// number of those that timed out waiting for measured demand.
func (s *Store) Expire(now time.Time) (timeouts *WaitTimeout, demandTimeouts int) {
	for _, expired := range s.timers.PopExpired(now) {
		switch expired.kind {
		case listTimeout:
			timeouts = s.onListTimeout()
		case keyTimeout:
			s.onKeyTimeout(policy.Key(expired.name))
		case measuredTimeout:
			demandTimeouts = s.onMeasuredTimeout()
		case nodeExpiry:
			delete(s.peers, expired.name)
			s.publish(expired.name)
		case demotionExpiry:
			s.expireDemotions(expired.name, now)
		case trackingExpiry:
			s.clearStale(expired.name)
		}
	}
	s.unblock()
	return timeouts, demandTimeouts
}

// HasChanges reports whether there are changes to take.
func (s *Store) HasChanges() bool { return !s.change.IsEmpty() || len(s.changed) > 0 }

// TakeChanges moves the undelivered changes to into.
func (s *Store) TakeChanges(into *model.Change) {
	into.Nodes, into.AllNodes, into.Demotions = s.change.Nodes, s.change.AllNodes, s.changed
	s.change, s.changed = model.Change{}, nil
}
