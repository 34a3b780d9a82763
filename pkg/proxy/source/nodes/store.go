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
	listTimeout    timerKind = iota // of the lists: Services stop waiting for them
	keyTimeout                      // of a label: Services stop waiting for it
	giveUpMeasured                  // of measured demand: Services stop waiting for it
	nodeExpiry                      // of a node that no source describes any more
	demotionExpiry                  // of the demotions of a node
	lift                            // of the demotions of a deleted node, or of an existence check
)

// NewStore returns an empty Store for the node with the name self.
func NewStore(own string) *Store {
	d := &Store{
		self: own, current: newSourceState(nil),
		fullNodes: map[string]*model.Node{}, peers: map[string]*model.Node{}, delivered: map[string]*model.Node{},
	}
	d.demotionTracker = newDemotionTracker(&d.timers)
	d.labelGate = newLabelGate(&d.timers, func(key policy.Key) bool { return d.current.isKnown(key) })
	return d
}

// SetServiceKeys sets the labels of other nodes that a Service names, and whether it is planned with measured demand.
// It reports whether the Service has to wait for them.
func (d *Store) SetServiceKeys(service model.ObjectName, keys []policy.Key, isMeasured bool, now time.Time) (waits bool) {
	if delete(d.measured, service); isMeasured {
		d.measured[service] = true
	}
	if d.setKeys(service, keys) { // a label that may not have been delivered
		for name := range d.fullNodes {
			d.publish(name)
		}
		for name := range d.peers {
			d.publish(name)
		}
	}
	return d.blockIfNeeded(service, now)
}

// Update processes an object of a kind that describes nodes; a nil value means that it was deleted.
func (d *Store) Update(kind *convert.Kind, name model.ObjectName, value any, now time.Time) {
	from := providerOf(kind)
	switch {
	case from.role == fullNode:
		putNode(d.fullNodes, name.Name, value)
		d.publish(name.Name)
	case from.role == demotionLabel:
		node, _ := value.(*model.Node)
		d.observeLabels(from, name.Name, node, now)
	case d.pending != nil && slices.Contains(d.pending.kinds, kind):
		d.pending.update(from, name, value) // evaluated when all lists are complete
	default:
		if slice, _ := value.(*model.TopologySlice); slice != nil {
			for _, key := range slice.Keys {
				delete(d.timedOut, key)
			}
		}
		isLeftOut := from.omitsDeleted && (value != nil || from.role == peerNode)
		for node := range d.current.update(from, name, value) {
			d.refresh(node, isLeftOut, now)
		}
		d.unblock()
	}
}

// UpdateFull processes a complete Node, and reads all of its demotion labels; nil means that it was deleted. Then
// existence checks concern only nodes that were deleted.
func (d *Store) UpdateFull(name string, node *model.Node, now time.Time) {
	var value any
	if node != nil {
		value = node
	}
	d.Update(convert.Nodes, model.ObjectName{Name: name}, value, now)
	for i := range providers {
		if providers[i].role == demotionLabel {
			d.observeLabels(&providers[i], name, node, now)
		}
	}
}

// refresh updates a node from its source. If the source no longer describes it, the node is removed at once if that
// means that it was deleted; otherwise after NodeRetention.
func (d *Store) refresh(name string, isLeftOut bool, now time.Time) {
	if name == d.self {
		return // its own Node object describes it
	}
	node, forget := d.current.node(name), timer{nodeExpiry, name}
	switch {
	case node != nil:
		d.peers[name] = node
	case isLeftOut:
		delete(d.peers, name)
	case d.peers[name] != nil:
		d.timers.Schedule(forget, now.Add(NodeRetention))
		return
	}
	d.timers.Cancel(forget)
	d.publish(name)
}

// publish delivers a node with the labels in use, if that differs from the last delivery. A label that is no longer in
// use may be outdated until it is used again.
func (d *Store) publish(name string) {
	node, before := d.peers[name], d.delivered[name]
	if whole := d.fullNodes[name]; whole != nil {
		node = whole
	}
	if node == nil {
		if before != nil {
			delete(d.delivered, name)
			d.recordChange(name, nil)
		}
		return
	}
	used := d.withUsedLabels(node)
	if before != nil && reflect.DeepEqual(d.withUsedLabels(before), used) {
		return
	}
	d.delivered[name] = used
	d.recordChange(name, used)
}

// withUsedLabels returns a node with the labels that Services name; for this node also with the zone, which hints need,
// and the operating system. With AllLabels it returns all labels.
func (d *Store) withUsedLabels(node *model.Node) *model.Node {
	if d.AllLabels {
		return node
	}
	used := *node
	used.Labels = map[string]string{} // never nil: a node without any of them is still known
	take := func(key policy.Key) {
		if value, has := node.Labels[string(key)]; has {
			used.Labels[string(key)] = value
		}
	}
	for key := range d.uses {
		take(key)
	}
	if d.fullNodes[node.Name] != nil {
		take(policy.Zone)
		take(policy.OSLabel)
	}
	return &used
}

func (d *Store) recordChange(name string, node *model.Node) {
	if d.change.Nodes == nil {
		d.change.Nodes = map[string]*model.Node{}
	}
	d.change.Nodes[name] = node
}

// SwitchSource sets the kinds of objects that will describe the other nodes. Until all of them are listed, the last
// known state stays active, and blocked Services keep waiting.
func (d *Store) SwitchSource(kinds ...*convert.Kind) { d.pending = newSourceState(kinds) }

// OnListed records that all objects of a kind are listed. Once all kinds of a source are listed, all nodes are known.
func (d *Store) OnListed(kind *convert.Kind, now time.Time) {
	from := providerOf(kind)
	if !IsPeerSource(kind) {
		return
	}
	if d.pending != nil {
		if at := slices.Index(d.pending.missing, kind); at >= 0 {
			d.pending.missing = slices.Delete(d.pending.missing, at, at+1)
		}
		if len(d.pending.missing) > 0 {
			return
		}
		d.activateNext(now)
	}
	for name := range d.peers {
		d.refresh(name, from.omitsDeleted && from.role == peerNode, now)
	}
	if from.listIsFinal {
		d.timeOutUnknownKeys()
	}
	d.SetAllKnown(true)
	d.waitForKeys(now) // the other source has the labels that they wait for
}

// activateNext switches to the pending source. All of its objects are complete before any node is updated.
func (d *Store) activateNext(now time.Time) {
	d.current, d.pending = d.pending, nil
	clear(d.timedOut)
	for name := range d.peers {
		d.timers.Cancel(timer{nodeExpiry, name})
	}
	for name := range d.current.names {
		d.refresh(name, false, now)
	}
}

// SetAllKnown sets whether all nodes are known.
func (d *Store) SetAllKnown(known bool) {
	if d.peerNodes.isKnown != known {
		d.change.AllNodes = &known
	}
	d.setKnown(known)
}

// DropPeers drops the other nodes unless a Service needs them again. It reports whether it did.
func (d *Store) DropPeers() bool {
	if d.NeedsPeers() {
		return false
	}
	d.current, d.pending = newSourceState(nil), nil
	for name := range d.peers {
		delete(d.peers, name)
		d.timers.Cancel(timer{nodeExpiry, name})
		d.publish(name)
	}
	d.SetAllKnown(false)
	d.reset()
	return true
}

// SliceNodeCount returns the number of nodes that slices describe.
func (d *Store) SliceNodeCount() int { return len(d.current.slicesByNode) }

// NodeCount returns the number of known nodes, including this one.
func (d *Store) NodeCount() int { return len(d.peers) + 1 }

// Next returns the next deadline, and whether there is one.
func (d *Store) Next() (at time.Time, some bool) { return d.timers.Earliest() }

// Expire processes the expired deadlines. It returns the Services that timed out waiting for lists, or nil, and the
// number of those that timed out waiting for measured demand.
func (d *Store) Expire(now time.Time) (timeouts *WaitTimeout, forDemand int) {
	for _, due := range d.timers.PopExpired(now) {
		switch due.kind {
		case listTimeout:
			timeouts = d.onListTimeout()
		case keyTimeout:
			d.onKeyTimeout(policy.Key(due.name))
		case giveUpMeasured:
			forDemand = d.giveUpMeasured()
		case nodeExpiry:
			delete(d.peers, due.name)
			d.publish(due.name)
		case demotionExpiry:
			d.expireDemotions(due.name, now)
		case lift:
			d.clearStale(due.name)
		}
	}
	d.unblock()
	return timeouts, forDemand
}

// HasChanges reports whether there are changes to take.
func (d *Store) HasChanges() bool { return !d.change.IsEmpty() || len(d.changed) > 0 }

// TakeChanges moves the undelivered changes to into.
func (d *Store) TakeChanges(into *model.Change) {
	into.Nodes, into.AllNodes, into.Demotions = d.change.Nodes, d.change.AllNodes, d.changed
	d.change, d.changed = model.Change{}, nil
}
