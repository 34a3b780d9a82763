package nodes

import (
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/deadline"
)

// labelGate tracks the facts that Services need before they are served, and which Services wait for them. While nodes
// are unknown, a hard key would refuse all connections for a moment, and a soft one would select distant endpoints.
// With assumed demand a starting proxy would for a moment plan differently from its neighbours.
type labelGate struct {
	// keys are the labels of other nodes that a Service names, and uses is the number of Services that name each. measured
	// are the Services that are planned with measured demand, and blocked those that wait for anything.
	keys     map[model.ObjectName][]policy.Key
	uses     map[policy.Key]int
	measured map[model.ObjectName]bool
	blocked  map[model.ObjectName]bool
	// released are those that stopped waiting.
	released []model.ObjectName
	// timedOut are labels in use that were not published while Services waited for them. No Service waits for them again.
	timedOut          map[policy.Key]bool
	peerNodes, demand fact // all other nodes, and whether measured demand counts
	// isPublishedKey reports whether a label is known for all known nodes.
	isPublishedKey func(policy.Key) bool
	timers         *deadline.Queue[timer] // the Store's
}

// fact is a fact that several Services wait for.
type fact struct {
	isKnown    bool
	isTimedOut bool // Services no longer wait for it
}

func (f fact) isPending() bool { return !f.isKnown && !f.isTimedOut }

func newLabelGate(later *deadline.Queue[timer], isKnown func(policy.Key) bool) labelGate {
	return labelGate{
		keys: map[model.ObjectName][]policy.Key{}, uses: map[policy.Key]int{}, measured: map[model.ObjectName]bool{},
		blocked: map[model.ObjectName]bool{}, timedOut: map[policy.Key]bool{}, isPublishedKey: isKnown, timers: later,
	}
}

// NeedsPeers reports whether a Service names a label for which the other nodes must be known.
func (w *labelGate) NeedsPeers() bool { return len(w.keys) > 0 }

// NeedsMeasured reports whether a Service is planned with measured demand.
func (w *labelGate) NeedsMeasured() bool { return len(w.measured) > 0 }

// NeedsLabels reports whether a Service names a label that is neither the zone of a node nor its demand.
func (w *labelGate) NeedsLabels() bool {
	for key := range w.uses {
		if !isZoneOrDemand(key) {
			return true
		}
	}
	return false
}

// setKeys sets the labels of other nodes that a Service names, and reports whether one of them came into use.
func (w *labelGate) setKeys(service model.ObjectName, keys []policy.Key) (isMore bool) {
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
			delete(w.timedOut, key)
			w.timers.Cancel(timer{keyTimeout, string(key)})
		}
	}
	return isMore
}

// blockIfNeeded reports whether a Service has to wait, and blocks it if so.
func (w *labelGate) blockIfNeeded(service model.ObjectName, now time.Time) bool {
	delete(w.blocked, service)
	if !w.mustWait(service) {
		return false
	}
	w.blocked[service] = true
	w.startKeyTimeouts(w.keys[service], now)
	return true
}

// IsBlocked reports whether a Service waits.
func (w *labelGate) IsBlocked(service model.ObjectName) bool { return w.blocked[service] }

// mustWait reports whether a Service has to wait: for measured demand, for the other nodes, or until a label that came
// into use is published.
func (w *labelGate) mustWait(service model.ObjectName) bool {
	keys := w.keys[service]
	switch {
	case w.measured[service] && w.demand.isPending():
		return true
	case len(keys) == 0:
		return false
	case !w.peerNodes.isKnown:
		return w.peerNodes.isPending()
	}
	return slices.ContainsFunc(keys, w.isUnpublished)
}

// isUnpublished reports whether a label may yet be published.
func (w *labelGate) isUnpublished(key policy.Key) bool {
	return !w.isPublishedKey(key) && !w.timedOut[key]
}

// StartListTimeout starts the timeout for the lists of the other nodes, which have just been requested.
func (w *labelGate) StartListTimeout(now time.Time) { w.startWaiting(w.peerNodes, listTimeout, now) }

// WaitForMeasured starts the timeout for measured demand, which has just been requested.
func (w *labelGate) WaitForMeasured(now time.Time) { w.startWaiting(w.demand, giveUpMeasured, now) }

func (w *labelGate) startWaiting(f fact, end timerKind, now time.Time) {
	if !f.isKnown {
		w.timers.Schedule(timer{end, ""}, now.Add(LabelTimeout))
	}
}

// startKeyTimeouts starts the timeouts of the unpublished labels of a waiting Service.
func (w *labelGate) startKeyTimeouts(keys []policy.Key, now time.Time) {
	if !w.peerNodes.isKnown {
		return
	}
	for _, key := range keys {
		if w.isUnpublished(key) {
			w.timers.Schedule(timer{keyTimeout, string(key)}, now.Add(LabelTimeout))
		}
	}
}

func (w *labelGate) waitForKeys(now time.Time) {
	for service := range w.blocked {
		w.startKeyTimeouts(w.keys[service], now)
	}
}

// WaitTimeout describes the Services that timed out waiting for the lists of other nodes.
type WaitTimeout struct {
	Keys     []string // named by the Services
	Services int
}

func (w *labelGate) onListTimeout() *WaitTimeout {
	timeouts := &WaitTimeout{}
	if !w.peerNodes.isTimedOut {
		timeouts.Services = len(w.keys)
	}
	for _, key := range slices.Sorted(maps.Keys(w.uses)) {
		timeouts.Keys = append(timeouts.Keys, string(key))
	}
	w.peerNodes.isTimedOut = true
	return timeouts
}

// giveUpMeasured returns the number of Services that timed out waiting for measured demand.
func (w *labelGate) giveUpMeasured() (waited int) {
	if !w.demand.isTimedOut {
		waited = len(w.measured)
	}
	w.demand.isTimedOut = true
	return waited
}

// setKnown sets whether all nodes are known.
func (w *labelGate) setKnown(known bool) {
	if w.peerNodes.isKnown = known; known {
		w.timers.Cancel(timer{listTimeout, ""})
	}
	w.unblock()
}

// reset records that the other nodes are no longer watched.
func (w *labelGate) reset() {
	clear(w.timedOut)
	w.timers.Cancel(timer{listTimeout, ""})
	w.peerNodes.isTimedOut = false
	w.setKnown(false)
}

// SetMeasured sets whether it is known if measured demand counts; false if it is no longer requested.
func (w *labelGate) SetMeasured(known bool) {
	w.demand = fact{isKnown: known}
	w.timers.Cancel(timer{giveUpMeasured, ""})
	w.unblock()
}

func (w *labelGate) onKeyTimeout(key policy.Key) {
	if w.uses[key] > 0 && !w.isPublishedKey(key) {
		w.timedOut[key] = true
	}
}

// timeOutUnknownKeys ends the waiting for all labels in use: a label that was in use when the slices were listed, but
// is not in them, will not be published.
func (w *labelGate) timeOutUnknownKeys() {
	for key := range w.uses {
		if !w.isPublishedKey(key) {
			w.timedOut[key] = true
		}
	}
}

// unblock releases the Services that no longer wait for anything.
func (w *labelGate) unblock() {
	for service := range w.blocked {
		if !w.mustWait(service) {
			delete(w.blocked, service)
			w.released = append(w.released, service)
		}
	}
}

// TakeUnblocked returns the Services that have stopped waiting since the last call.
func (w *labelGate) TakeUnblocked() []model.ObjectName {
	released := w.released
	w.released = nil
	return released
}
