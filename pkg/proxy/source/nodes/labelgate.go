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
	// released are the Services that stopped waiting since the last TakeUnblocked.
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

func newLabelGate(timers *deadline.Queue[timer], isPublishedKey func(policy.Key) bool) labelGate {
	return labelGate{
		keys: map[model.ObjectName][]policy.Key{}, uses: map[policy.Key]int{}, measured: map[model.ObjectName]bool{},
		blocked: map[model.ObjectName]bool{}, timedOut: map[policy.Key]bool{}, isPublishedKey: isPublishedKey, timers: timers,
	}
}

// NeedsPeers reports whether a Service names a label for which the other nodes must be known.
func (g *labelGate) NeedsPeers() bool { return len(g.keys) > 0 }

// NeedsMeasured reports whether a Service is planned with measured demand.
func (g *labelGate) NeedsMeasured() bool { return len(g.measured) > 0 }

// NeedsLabels reports whether a Service names a label that is neither the zone of a node nor its demand.
func (g *labelGate) NeedsLabels() bool {
	for key := range g.uses {
		if !isZoneOrDemand(key) {
			return true
		}
	}
	return false
}

// setKeys sets the labels of other nodes that a Service names, and reports whether one of them came into use.
func (g *labelGate) setKeys(service model.ObjectName, keys []policy.Key) (hasNewKey bool) {
	before := g.keys[service]
	delete(g.keys, service)
	if len(keys) > 0 {
		g.keys[service] = keys
	}
	for _, key := range keys {
		g.uses[key]++
		hasNewKey = hasNewKey || g.uses[key] == 1
	}
	for _, key := range before {
		if g.uses[key]--; g.uses[key] == 0 {
			delete(g.uses, key)
			delete(g.timedOut, key)
			g.timers.Cancel(timer{keyTimeout, string(key)})
		}
	}
	return hasNewKey
}

// blockIfNeeded reports whether a Service has to wait, and blocks it if so.
func (g *labelGate) blockIfNeeded(service model.ObjectName, now time.Time) bool {
	delete(g.blocked, service)
	if !g.mustWait(service) {
		return false
	}
	g.blocked[service] = true
	g.startKeyTimeouts(g.keys[service], now)
	return true
}

// IsBlocked reports whether a Service waits.
func (g *labelGate) IsBlocked(service model.ObjectName) bool { return g.blocked[service] }

// mustWait reports whether a Service has to wait: for measured demand, for the other nodes, or until a label that came
// into use is published.
func (g *labelGate) mustWait(service model.ObjectName) bool {
	keys := g.keys[service]
	switch {
	case g.measured[service] && g.demand.isPending():
		return true
	case len(keys) == 0:
		return false
	case !g.peerNodes.isKnown:
		return g.peerNodes.isPending()
	}
	return slices.ContainsFunc(keys, g.isUnpublished)
}

// isUnpublished reports whether a label is not published yet, and Services still wait for it.
func (g *labelGate) isUnpublished(key policy.Key) bool {
	return !g.isPublishedKey(key) && !g.timedOut[key]
}

// StartListTimeout starts the timeout for the lists of the other nodes, which have just been requested.
func (g *labelGate) StartListTimeout(now time.Time) { g.startTimeout(g.peerNodes, listTimeout, now) }

// StartMeasuredTimeout starts the timeout for measured demand, which has just been requested.
func (g *labelGate) StartMeasuredTimeout(now time.Time) {
	g.startTimeout(g.demand, measuredTimeout, now)
}

func (g *labelGate) startTimeout(f fact, kind timerKind, now time.Time) {
	if !f.isKnown {
		g.timers.Schedule(timer{kind, ""}, now.Add(LabelTimeout))
	}
}

// startKeyTimeouts starts the timeouts of the unpublished labels of a waiting Service.
func (g *labelGate) startKeyTimeouts(keys []policy.Key, now time.Time) {
	if !g.peerNodes.isKnown {
		return
	}
	for _, key := range keys {
		if g.isUnpublished(key) {
			g.timers.Schedule(timer{keyTimeout, string(key)}, now.Add(LabelTimeout))
		}
	}
}

func (g *labelGate) startAllKeyTimeouts(now time.Time) {
	for service := range g.blocked {
		g.startKeyTimeouts(g.keys[service], now)
	}
}

// WaitTimeout describes the Services that timed out waiting for the lists of other nodes.
type WaitTimeout struct {
	Keys     []string // named by the Services
	Services int
}

func (g *labelGate) onListTimeout() *WaitTimeout {
	timeouts := &WaitTimeout{}
	if !g.peerNodes.isTimedOut {
		timeouts.Services = len(g.keys)
	}
	for _, key := range slices.Sorted(maps.Keys(g.uses)) {
		timeouts.Keys = append(timeouts.Keys, string(key))
	}
	g.peerNodes.isTimedOut = true
	return timeouts
}

// onMeasuredTimeout returns the number of Services that timed out waiting for measured demand.
func (g *labelGate) onMeasuredTimeout() (waited int) {
	if !g.demand.isTimedOut {
		waited = len(g.measured)
	}
	g.demand.isTimedOut = true
	return waited
}

// setKnown sets whether all nodes are known.
func (g *labelGate) setKnown(known bool) {
	if g.peerNodes.isKnown = known; known {
		g.timers.Cancel(timer{listTimeout, ""})
	}
	g.unblock()
}

// reset records that the other nodes are no longer watched.
func (g *labelGate) reset() {
	clear(g.timedOut)
	g.timers.Cancel(timer{listTimeout, ""})
	g.peerNodes.isTimedOut = false
	g.setKnown(false)
}

// SetMeasured sets whether it is known if measured demand counts; false if it is no longer requested.
func (g *labelGate) SetMeasured(known bool) {
	g.demand = fact{isKnown: known}
	g.timers.Cancel(timer{measuredTimeout, ""})
	g.unblock()
}

func (g *labelGate) onKeyTimeout(key policy.Key) {
	if g.uses[key] > 0 && !g.isPublishedKey(key) {
		g.timedOut[key] = true
	}
}

// timeOutUnknownKeys ends the waiting for the labels in use that no complete list of slices contains: the publisher
// would have published them by then.
func (g *labelGate) timeOutUnknownKeys() {
	for key := range g.uses {
		if !g.isPublishedKey(key) {
			g.timedOut[key] = true
		}
	}
}

// unblock releases the Services that no longer wait for anything.
func (g *labelGate) unblock() {
	for service := range g.blocked {
		if !g.mustWait(service) {
			delete(g.blocked, service)
			g.released = append(g.released, service)
		}
	}
}

// TakeUnblocked returns the Services that have stopped waiting since the last call.
func (g *labelGate) TakeUnblocked() []model.ObjectName {
	released := g.released
	g.released = nil
	return released
}
