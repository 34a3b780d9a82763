package nodes

import (
	"reflect"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/later"
)

// Directory is what is known about nodes. It is for one goroutine at a time.
type Directory struct {
	own string // the name of this node
	// AllLabels: nodes are handed over with all of their labels, instead of those in use.
	AllLabels bool

	// now is what the source in force says. next is what its successor says, which takes over as soon as it is complete;
	// nil without a successor.
	now, next *sayings
	// wholes are the Nodes that were read in full, and known the other nodes.
	wholes, known map[string]*model.Node
	// shown are the nodes as they were handed over.
	shown map[string]*model.Node

	waiting
	avoided
	later  later.Queue[matter] // what is due to all parts
	change model.Change        // what was not handed over yet: nodes, and whether they are all
}

// matter is something that should happen later to something with a name.
type matter struct {
	what what
	name string
}

type what int

const (
	giveUp         what = iota // on the lists: no Service waits for them any more
	giveUpKey                  // on a label: no Service waits for it any more
	giveUpMeasured             // on measured demand: no Service waits for it any more
	forgetNode                 // that no source describes any more
	endAvoid                   // of a node and reason
	lift                       // what a node said against itself that is gone, or of which there is no answer
)

// New returns an empty directory of the node that is called own.
func New(own string) *Directory {
	d := &Directory{
		own: own, now: newSayings(nil),
		wholes: map[string]*model.Node{}, known: map[string]*model.Node{}, shown: map[string]*model.Node{},
	}
	d.avoided = newAvoided(&d.later)
	d.waiting = newWaiting(&d.later, func(key policy.Key) bool { return d.now.isKnown(key) })
	return d
}

// Ask takes in the labels of other nodes that a Service names from now on, and whether it is planned with measured demand.
// It reports whether the Service has to wait for them.
func (d *Directory) Ask(service model.ObjectName, keys []policy.Key, isMeasured bool, now time.Time) (waits bool) {
	if delete(d.measured, service); isMeasured {
		d.measured[service] = true
	}
	if d.use(service, keys) { // a label that may not have been handed over
		for name := range d.wholes {
			d.show(name)
		}
		for name := range d.known {
			d.show(name)
		}
	}
	return d.wait(service, now)
}

// Put takes in an object of a kind that says something about nodes; nil: it is gone.
func (d *Directory) Put(kind *convert.Kind, name model.ObjectName, value any, now time.Time) {
	from := providerOf(kind)
	switch {
	case from.role == whole:
		putNode(d.wholes, name.Name, value)
		d.show(name.Name)
	case from.role == reason:
		node, _ := value.(*model.Node)
		d.hold(from, name.Name, node, now)
	case d.next != nil && slices.Contains(d.next.kinds, kind):
		d.next.put(from, name, value) // it is looked at when all lists are there
	default:
		if slice, _ := value.(*model.TopologySlice); slice != nil {
			for _, key := range slice.Keys {
				delete(d.inVain, key)
			}
		}
		isLeftOut := from.leavesOut && (value != nil || from.role == single)
		for node := range d.now.put(from, name, value) {
			d.look(node, isLeftOut, now)
		}
		d.release()
	}
}

// PutWhole takes in a complete Node, and reads everything that it says about itself; nil: it is gone. There are then
// only Questions about nodes that are gone.
func (d *Directory) PutWhole(name string, node *model.Node, now time.Time) {
	var value any
	if node != nil {
		value = node
	}
	d.Put(convert.Nodes, model.ObjectName{Name: name}, value, now)
	for i := range providers {
		if providers[i].role == reason {
			d.hold(&providers[i], name, node, now)
		}
	}
}

// look takes over what is said about a node. If nothing is said any more, the node goes at once if its source means
// that; else it is remembered for a while.
func (d *Directory) look(name string, isLeftOut bool, now time.Time) {
	if name == d.own {
		return // it speaks for itself
	}
	node, forget := d.now.node(name), matter{forgetNode, name}
	switch {
	case node != nil:
		d.known[name] = node
	case isLeftOut:
		delete(d.known, name)
	case d.known[name] != nil:
		d.later.At(forget, now.Add(Remembrance))
		return
	}
	d.later.Cancel(forget)
	d.show(name)
}

// show hands a node over with the labels in use, if that differs from what was handed over. A label that went out of use
// may be old until it is used again.
func (d *Directory) show(name string) {
	node, before := d.known[name], d.shown[name]
	if whole := d.wholes[name]; whole != nil {
		node = whole
	}
	if node == nil {
		if before != nil {
			delete(d.shown, name)
			d.note(name, nil)
		}
		return
	}
	used := d.inUse(node)
	if before != nil && reflect.DeepEqual(d.inUse(before), used) {
		return
	}
	d.shown[name] = used
	d.note(name, used)
}

// inUse returns a node with the labels that Services name, and of this node the zone, which hints read, and its operating
// system; or all.
func (d *Directory) inUse(node *model.Node) *model.Node {
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
	if d.wholes[node.Name] != nil {
		take(policy.Zone)
		take(policy.OSLabel)
	}
	return &used
}

func (d *Directory) note(name string, node *model.Node) {
	if d.change.Nodes == nil {
		d.change.Nodes = map[string]*model.Node{}
	}
	d.change.Nodes[name] = node
}

// Begin takes in that the other nodes will be learnt from objects of some kinds. Until all of those are listed, the
// last known state stays in force, and Services that wait go on waiting.
func (d *Directory) Begin(kinds ...*convert.Kind) { d.next = newSayings(kinds) }

// Listed takes in that all objects of a kind are listed. Once that holds for all kinds from which the other nodes are
// learnt, the nodes are known.
func (d *Directory) Listed(kind *convert.Kind, now time.Time) {
	from := providerOf(kind)
	if !AreOthers(kind) {
		return
	}
	if d.next != nil {
		if at := slices.Index(d.next.missing, kind); at >= 0 {
			d.next.missing = slices.Delete(d.next.missing, at, at+1)
		}
		if len(d.next.missing) > 0 {
			return
		}
		d.takeOver(now)
	}
	for name := range d.known {
		d.look(name, from.leavesOut && from.role == single, now)
	}
	if from.isFinal {
		d.waiveKeys()
	}
	d.KnowAll(true)
	d.waitForKeys(now) // another source has what they wait for
}

// takeOver starts over with what all objects say together, before anything is decided.
func (d *Directory) takeOver(now time.Time) {
	d.now, d.next = d.next, nil
	clear(d.inVain)
	for name := range d.known {
		d.later.Cancel(matter{forgetNode, name})
	}
	for name := range d.now.names {
		d.look(name, false, now)
	}
}

// KnowAll takes in whether all nodes are known.
func (d *Directory) KnowAll(known bool) {
	if d.others.isKnown != known {
		d.change.AllNodes = &known
	}
	d.setKnown(known)
}

// Drop takes the other nodes back, unless a Service needs them again. It reports whether it has.
func (d *Directory) Drop() bool {
	if d.NeedsOthers() {
		return false
	}
	d.now, d.next = newSayings(nil), nil
	for name := range d.known {
		delete(d.known, name)
		d.later.Cancel(matter{forgetNode, name})
		d.show(name)
	}
	d.KnowAll(false)
	d.reset()
	return true
}

// Described is how many nodes the slices describe.
func (d *Directory) Described() int { return len(d.now.holders) }

// Known is how many nodes are known, this one included.
func (d *Directory) Known() int { return len(d.known) + 1 }

// Next returns when something is due next, and whether anything is.
func (d *Directory) Next() (at time.Time, some bool) { return d.later.Next() }

// Expire does what is due. If Services waited for lists in vain, it returns what they waited for; forDemand is how many
// waited in vain for measured demand.
func (d *Directory) Expire(now time.Time) (vain *Vain, forDemand int) {
	for _, due := range d.later.Due(now) {
		switch due.what {
		case giveUp:
			vain = d.giveUp()
		case giveUpKey:
			d.giveUpKey(policy.Key(due.name))
		case giveUpMeasured:
			forDemand = d.giveUpMeasured()
		case forgetNode:
			delete(d.known, due.name)
			d.show(due.name)
		case endAvoid:
			d.end(due.name, now)
		case lift:
			d.settle(due.name)
		}
	}
	d.release()
	return vain, forDemand
}

// HasNews reports whether there is something to take.
func (d *Directory) HasNews() bool { return !d.change.IsEmpty() || len(d.news) > 0 }

// Take moves what is new into a change.
func (d *Directory) Take(into *model.Change) {
	into.Nodes, into.AllNodes, into.Avoid = d.change.Nodes, d.change.AllNodes, d.news
	d.change, d.news = model.Change{}, nil
}
