package nodes

import (
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/later"
)

// waiting is what Services need to know before they are served, and which of them wait for it: while nodes are unknown, a
// hard key would refuse all connections for a moment, and a soft one would lead them far away; and with assumed demand a
// starting proxy would for a moment plan something else than its neighbours.
type waiting struct {
	// keys are the labels of other nodes that a Service names, and uses how many Services name each. measured are the
	// Services that are planned with measured demand, and waits those that wait for anything.
	keys     map[model.ObjectName][]policy.Key
	uses     map[policy.Key]int
	measured map[model.ObjectName]bool
	waits    map[model.ObjectName]bool
	// released are those that waited, and no longer do.
	released []model.ObjectName
	// inVain are labels in use that nobody published while Services waited for them. No Service waits for them again.
	inVain         map[policy.Key]bool
	others, demand fact // all other nodes, and whether measured demand counts
	// isKnown reports whether a label is known for all known nodes.
	isKnown func(policy.Key) bool
	later   *later.Queue[matter] // the directory's
}

// fact is what several Services wait for.
type fact struct {
	isKnown   bool
	isOverdue bool // Services no longer wait for it
}

func (f fact) isAwaited() bool { return !f.isKnown && !f.isOverdue }

func newWaiting(later *later.Queue[matter], isKnown func(policy.Key) bool) waiting {
	return waiting{
		keys: map[model.ObjectName][]policy.Key{}, uses: map[policy.Key]int{}, measured: map[model.ObjectName]bool{},
		waits: map[model.ObjectName]bool{}, inVain: map[policy.Key]bool{}, isKnown: isKnown, later: later,
	}
}

// NeedsOthers reports whether a Service names a label for which the other nodes must be known.
func (w *waiting) NeedsOthers() bool { return len(w.keys) > 0 }

// NeedsMeasured reports whether a Service is planned with measured demand.
func (w *waiting) NeedsMeasured() bool { return len(w.measured) > 0 }

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

// wait reports whether a Service has to wait for anything that it needs.
func (w *waiting) wait(service model.ObjectName, now time.Time) bool {
	delete(w.waits, service)
	if !w.awaits(service) {
		return false
	}
	w.waits[service] = true
	w.waitFor(w.keys[service], now)
	return true
}

// Waits reports whether a Service waits.
func (w *waiting) Waits(service model.ObjectName) bool { return w.waits[service] }

// awaits reports whether a Service waits: for measured demand, for the other nodes, or for a label that came into use to
// be published.
func (w *waiting) awaits(service model.ObjectName) bool {
	keys := w.keys[service]
	switch {
	case w.measured[service] && w.demand.isAwaited():
		return true
	case len(keys) == 0:
		return false
	case !w.others.isKnown:
		return w.others.isAwaited()
	}
	return slices.ContainsFunc(keys, w.isUnpublished)
}

// isUnpublished reports whether a label may yet be published.
func (w *waiting) isUnpublished(key policy.Key) bool {
	return !w.isKnown(key) && !w.inVain[key]
}

// Await takes in that the other nodes are asked for from now on.
func (w *waiting) Await(now time.Time) { w.await(w.others, giveUp, now) }

// AwaitMeasured takes in that measured demand is asked for from now on.
func (w *waiting) AwaitMeasured(now time.Time) { w.await(w.demand, giveUpMeasured, now) }

func (w *waiting) await(f fact, end what, now time.Time) {
	if !f.isKnown {
		w.later.At(matter{end, ""}, now.Add(Patience))
	}
}

// waitFor notes that a Service waits for labels to be published.
func (w *waiting) waitFor(keys []policy.Key, now time.Time) {
	if !w.others.isKnown {
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
	vain := &Vain{}
	if !w.others.isOverdue {
		vain.Services = len(w.keys)
	}
	for _, key := range slices.Sorted(maps.Keys(w.uses)) {
		vain.Keys = append(vain.Keys, string(key))
	}
	w.others.isOverdue = true
	return vain
}

// giveUpMeasured returns how many Services waited in vain for measured demand.
func (w *waiting) giveUpMeasured() (waited int) {
	if !w.demand.isOverdue {
		waited = len(w.measured)
	}
	w.demand.isOverdue = true
	return waited
}

// setKnown takes in whether all nodes are known.
func (w *waiting) setKnown(known bool) {
	if w.others.isKnown = known; known {
		w.later.Cancel(matter{giveUp, ""})
	}
	w.release()
}

// reset takes in that the other nodes are not asked for any more.
func (w *waiting) reset() {
	clear(w.inVain)
	w.later.Cancel(matter{giveUp, ""})
	w.others.isOverdue = false
	w.setKnown(false)
}

// KnowMeasured takes in whether it is known if measured demand counts; if not, it is not asked for any more.
func (w *waiting) KnowMeasured(known bool) {
	w.demand = fact{isKnown: known}
	w.later.Cancel(matter{giveUpMeasured, ""})
	w.release()
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
		if !w.awaits(service) {
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
