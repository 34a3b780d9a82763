package nodes

import (
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/later"
)

// waiting is which labels of other nodes are in use, and which Services wait for them: while nodes are unknown, a hard
// key would refuse all connections for a moment, and a soft one would lead them far away.
type waiting struct {
	// keys are the labels that a Service names, uses how many Services name each, and waits those Services that wait.
	keys  map[model.ObjectName][]policy.Key
	uses  map[policy.Key]int
	waits map[model.ObjectName]bool
	// released are those that waited, and no longer do.
	released []model.ObjectName
	// inVain are labels in use that nobody published while Services waited for them. No Service waits for them again.
	inVain map[policy.Key]bool
	// knowsAll: all other nodes are known. isOverdue: Services no longer wait for that.
	knowsAll, isOverdue bool
	// isKnown reports whether a label is known for all known nodes.
	isKnown func(policy.Key) bool
	later   later.Queue[matter]
}

func newWaiting(isKnown func(policy.Key) bool) waiting {
	return waiting{
		keys: map[model.ObjectName][]policy.Key{}, uses: map[policy.Key]int{}, waits: map[model.ObjectName]bool{},
		inVain: map[policy.Key]bool{}, isKnown: isKnown,
	}
}

// NeedsOthers reports whether a Service names a label for which the other nodes must be known.
func (w *waiting) NeedsOthers() bool { return len(w.keys) > 0 }

// NeedsLabels reports whether a Service names a label that is neither the zone of a node nor its demand.
func (w *waiting) NeedsLabels() bool {
	for key := range w.uses {
		if !asksFor(key) {
			return true
		}
	}
	return false
}

// use takes in the labels of other nodes that a Service names from now on, and reports whether one came into use.
func (w *waiting) use(service model.ObjectName, keys []policy.Key) (isMore bool) {
	before := w.keys[service]
	delete(w.keys, service)
	if len(keys) > 0 {
		w.keys[service] = keys
	}
	for _, key := range keys {
		w.uses[key]++
		isMore = isMore || w.uses[key] == 1
	}
	for _, key := range before {
		if w.uses[key]--; w.uses[key] == 0 {
			delete(w.uses, key)
			delete(w.inVain, key)
			w.later.Cancel(matter{giveUpKey, string(key)})
		}
	}
	return isMore
}

// wait reports whether a Service has to wait for the labels that it names.
func (w *waiting) wait(service model.ObjectName, now time.Time) bool {
	delete(w.waits, service)
	keys := w.keys[service]
	if !w.awaits(keys) {
		return false
	}
	w.waits[service] = true
	w.waitFor(keys, now)
	return true
}

// Waits reports whether a Service waits for the labels that it names.
func (w *waiting) Waits(service model.ObjectName) bool { return w.waits[service] }

// awaits reports whether a Service with these keys waits: for the other nodes, or for a label that came into use to be
// published.
func (w *waiting) awaits(keys []policy.Key) bool {
	switch {
	case len(keys) == 0:
		return false
	case !w.knowsAll:
		return !w.isOverdue
	}
	return slices.ContainsFunc(keys, w.isUnpublished)
}

// isUnpublished reports whether a label may yet be published.
func (w *waiting) isUnpublished(key policy.Key) bool {
	return !w.isKnown(key) && !w.inVain[key]
}

// Await takes in that the other nodes are asked for from now on.
func (w *waiting) Await(now time.Time) {
	if !w.knowsAll {
		w.later.At(matter{giveUp, ""}, now.Add(Patience))
	}
}

// waitFor notes that a Service waits for labels to be published.
func (w *waiting) waitFor(keys []policy.Key, now time.Time) {
	if !w.knowsAll {
		return
	}
	for _, key := range keys {
		if w.isUnpublished(key) {
			w.later.At(matter{giveUpKey, string(key)}, now.Add(Patience))
		}
	}
}

func (w *waiting) waitForKeys(now time.Time) {
	for service := range w.waits {
		w.waitFor(w.keys[service], now)
	}
}

// Vain is what Services waited for in vain: lists of other nodes.
type Vain struct {
	Keys     []string // that they name
	Services int
}

func (w *waiting) giveUp() *Vain {
	vain := &Vain{Services: len(w.waits)}
	for _, key := range slices.Sorted(maps.Keys(w.uses)) {
		vain.Keys = append(vain.Keys, string(key))
	}
	w.isOverdue = true
	return vain
}

// setKnown takes in whether all nodes are known.
func (w *waiting) setKnown(known bool) {
	if w.knowsAll = known; known {
		w.later.Cancel(matter{giveUp, ""})
	}
	w.release()
}

// reset takes in that the other nodes are not asked for any more.
func (w *waiting) reset() {
	clear(w.inVain)
	w.later.Cancel(matter{giveUp, ""})
	w.isOverdue = false
	w.setKnown(false)
}

// expire releases the Services that have waited long enough. If they waited for lists, it returns what they waited for.
func (w *waiting) expire(now time.Time) (vain *Vain) {
	for _, due := range w.later.Due(now) {
		if due.what == giveUp {
			vain = w.giveUp()
		} else {
			w.giveUpKey(policy.Key(due.name))
		}
	}
	w.release()
	return vain
}

func (w *waiting) giveUpKey(key policy.Key) {
	if w.uses[key] > 0 && !w.isKnown(key) {
		w.inVain[key] = true
	}
}

// waiveKeys ends the waiting for all labels in use: a label that was in use when the slices were listed, but is not in
// them, will not be published.
func (w *waiting) waiveKeys() {
	for key := range w.uses {
		if !w.isKnown(key) {
			w.inVain[key] = true
		}
	}
}

// release releases the Services that no longer wait for anything.
func (w *waiting) release() {
	for service := range w.waits {
		if !w.awaits(w.keys[service]) {
			delete(w.waits, service)
			w.released = append(w.released, service)
		}
	}
}

// Released returns the Services that have stopped waiting since the last call.
func (w *waiting) Released() []model.ObjectName {
	released := w.released
	w.released = nil
	return released
}
