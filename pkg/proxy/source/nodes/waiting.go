package nodes

import (
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// waiting is which labels of other nodes are in use, and which Services wait for them: with unknown nodes a hard key would
// refuse all connections for a moment, and a soft one lead them far away.
type waiting struct {
	// keys are the labels that a Service names, uses how many Services name each, and waits those Services that wait.
	keys  map[model.ObjectName][]policy.Key
	uses  map[policy.Key]int
	waits map[model.ObjectName]bool
	// released are those that waited, and do no more.
	released []model.ObjectName
	// inVain are labels in use that nobody published while Services waited for it. None waits for them again.
	inVain map[policy.Key]bool
	// isOverdue: no Service waits any more for all nodes to be listed.
	isOverdue bool
}

func newWaiting() waiting {
	return waiting{
		keys: map[model.ObjectName][]policy.Key{}, uses: map[policy.Key]int{}, waits: map[model.ObjectName]bool{},
		inVain: map[policy.Key]bool{},
	}
}

// NeedsOthers reports whether a Service names a label for which the other nodes must be known.
func (w *waiting) NeedsOthers() bool { return len(w.keys) > 0 }

// NeedsLabels reports whether a Service names a label that says neither the zone of a node nor what it asks.
func (w *waiting) NeedsLabels() bool {
	for key := range w.uses {
		if !asksFor(key) {
			return true
		}
	}
	return false
}

// Ask takes in the labels of other nodes that a Service names from now on, and reports whether it has to wait for them.
func (d *Directory) Ask(service model.ObjectName, keys []policy.Key, now time.Time) (waits bool) {
	before := d.keys[service]
	delete(d.keys, service)
	delete(d.waits, service)
	if len(keys) > 0 {
		d.keys[service] = keys
	}
	isMore := false
	for _, key := range keys {
		d.uses[key]++
		isMore = isMore || d.uses[key] == 1
	}
	for _, key := range before {
		if d.uses[key]--; d.uses[key] == 0 {
			delete(d.uses, key)
			delete(d.inVain, key)
			d.later.Cancel(matter{giveUpKey, string(key)})
		}
	}
	if isMore {
		d.showAll()
	}
	if !d.awaits(keys) {
		return false
	}
	d.waits[service] = true
	d.waitFor(keys, now)
	return true
}

// showAll looks at all nodes anew, after a label came into use.
func (d *Directory) showAll() {
	for name := range d.wholes {
		d.show(name)
	}
	for name := range d.known {
		d.show(name)
	}
}

// awaits reports whether a Service with these keys waits: for the other nodes, or until a label that came into use is
// published of them.
func (d *Directory) awaits(keys []policy.Key) bool {
	switch {
	case len(keys) == 0:
		return false
	case !d.knowsAll:
		return !d.isOverdue
	}
	return slices.ContainsFunc(keys, d.isUnpublished)
}

// isUnpublished reports whether a label may yet be published.
func (d *Directory) isUnpublished(key policy.Key) bool {
	return len(d.now.slices) > 0 && !d.now.isKnown(key) && !d.inVain[key]
}

// Await takes in that the other nodes are asked for from now on.
func (d *Directory) Await(now time.Time) {
	if !d.knowsAll {
		d.later.At(matter{giveUp, ""}, now.Add(Patience))
	}
}

// waitFor notes that a Service waits for labels to be published.
func (d *Directory) waitFor(keys []policy.Key, now time.Time) {
	if !d.knowsAll {
		return
	}
	for _, key := range keys {
		if d.isUnpublished(key) {
			d.later.At(matter{giveUpKey, string(key)}, now.Add(Patience))
		}
	}
}

func (d *Directory) waitForKeys(now time.Time) {
	for service := range d.waits {
		d.waitFor(d.keys[service], now)
	}
}

// Vain is what Services waited for in vain: lists of other nodes.
type Vain struct {
	Keys     []string // that they name
	Services int
}

func (d *Directory) giveUp() *Vain {
	vain := &Vain{Services: len(d.waits)}
	for _, key := range slices.Sorted(maps.Keys(d.uses)) {
		vain.Keys = append(vain.Keys, string(key))
	}
	d.isOverdue = true
	return vain
}

func (d *Directory) giveUpKey(key policy.Key) {
	if d.uses[key] > 0 && !d.now.isKnown(key) {
		d.inVain[key] = true
	}
}

// waiveKeys lets no Service wait for the labels that are in use now: what was in use when the slices were listed, and is
// not published, is not going to be.
func (d *Directory) waiveKeys() {
	for key := range d.uses {
		if !d.now.isKnown(key) {
			d.inVain[key] = true
		}
	}
}

// release lets those go that wait for nothing any more.
func (d *Directory) release() {
	for service := range d.waits {
		if !d.awaits(d.keys[service]) {
			delete(d.waits, service)
			d.released = append(d.released, service)
		}
	}
}

// Released returns the Services that waited and do no more, since the last call.
func (d *Directory) Released() []model.ObjectName {
	released := d.released
	d.released = nil
	return released
}
