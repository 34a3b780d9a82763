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

// Store is what is known about nodes. It is for one goroutine at a time.
type Store struct {
	self string // the name of this node
	// AllLabels: nodes are handed over with all of their labels, instead of those in use.
	AllLabels bool

	// current is what the source in force says. next is what its successor says, which takes over as soon as it is complete;
	// nil without a successor.
	current, pending *sourceState
	// fullNodes are the Nodes that were read in full, and known the other nodes.
	fullNodes, peers map[string]*model.Node
	// delivered are the nodes as they were handed over.
	delivered map[string]*model.Node

	labelGate
	demotionTracker
	timers deadline.Queue[timer] // what is due to all parts
	change model.Change          // what was not handed over yet: nodes, and whether they are all
}

// timer is something that should happen later to something with a name.
type timer struct {
	kind timerKind
	name string
}

type timerKind int

const (
	listTimeout    timerKind = iota // on the lists: no Service waits for them any more
	keyTimeout                      // on a label: no Service waits for it any more
	giveUpMeasured                  // on measured demand: no Service waits for it any more
	nodeExpiry                      // that no source describes any more
	demotionExpiry                  // of a node and reason
	lift                            // what a node said against itself that is gone, or of which there is no answer
)

// NewStore returns an empty directory of the node that is called own.
func NewStore(own string) *Store {
	d := &Store{
		self: own, current: newSourceState(nil),
		fullNodes: map[string]*model.Node{}, peers: map[string]*model.Node{}, delivered: map[string]*model.Node{},
	}
	d.demotionTracker = newDemotionTracker(&d.timers)
	d.labelGate = newLabelGate(&d.timers, func(key policy.Key) bool { return d.current.isKnown(key) })
	return d
}

// SetServiceKeys takes in the labels of other nodes that a Service names from now on, and whether it is planned with measured demand.
// It reports whether the Service has to wait for them.
func (d *Store) SetServiceKeys(service model.ObjectName, keys []policy.Key, isMeasured bool, now time.Time) (waits bool) {
	if delete(d.measured, service); isMeasured {
		d.measured[service] = true
	}
	if d.setKeys(service, keys) { // a label that may not have been handed over
		for name := range d.fullNodes {
			d.publish(name)
		}
		for name := range d.peers {
			d.publish(name)
		}
	}
	return d.blockIfNeeded(service, now)
}

// Update takes in an object of a kind that says something about nodes; nil: it is gone.
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
		d.pending.update(from, name, value) // it is looked at when all lists are there
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

// UpdateFull takes in a complete Node, and reads everything that it says about itself; nil: it is gone. There are then
// only Questions about nodes that are gone.
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

// refresh takes over what is said about a node. If nothing is said any more, the node goes at once if its source means
// that; else it is remembered for a while.
func (d *Store) refresh(name string, isLeftOut bool, now time.Time) {
	if name == d.self {
		return // it speaks for itself
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

// publish hands a node over with the labels in use, if that differs from what was handed over. A label that went out of use
// may be old until it is used again.
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

// withUsedLabels returns a node with the labels that Services name, and of this node the zone, which hints read, and its operating
// system; or all.
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

// SwitchSource takes in that the other nodes will be learnt from objects of some kinds. Until all of those are listed, the
// last known state stays in force, and Services that wait go on waiting.
func (d *Store) SwitchSource(kinds ...*convert.Kind) { d.pending = newSourceState(kinds) }

// OnListed takes in that all objects of a kind are listed. Once that holds for all kinds from which the other nodes are
// learnt, the nodes are known.
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
	d.waitForKeys(now) // another source has what they wait for
}

// activateNext starts over with what all objects say together, before anything is decided.
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

// SetAllKnown takes in whether all nodes are known.
func (d *Store) SetAllKnown(known bool) {
	if d.peerNodes.isKnown != known {
		d.change.AllNodes = &known
	}
	d.setKnown(known)
}

// DropPeers takes the other nodes back, unless a Service needs them again. It reports whether it has.
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

// SliceNodeCount is how many nodes the slices describe.
func (d *Store) SliceNodeCount() int { return len(d.current.slicesByNode) }

// NodeCount is how many nodes are known, this one included.
func (d *Store) NodeCount() int { return len(d.peers) + 1 }

// Next returns when something is due next, and whether anything is.
func (d *Store) Next() (at time.Time, some bool) { return d.timers.Earliest() }

// Expire does what is due. If Services waited for lists in vain, it returns what they waited for; forDemand is how many
// waited in vain for measured demand.
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

// HasChanges reports whether there is something to take.
func (d *Store) HasChanges() bool { return !d.change.IsEmpty() || len(d.changed) > 0 }

// TakeChanges moves what is new into a change.
func (d *Store) TakeChanges(into *model.Change) {
	into.Nodes, into.AllNodes, into.Demotions = d.change.Nodes, d.change.AllNodes, d.changed
	d.change, d.changed = model.Change{}, nil
}
