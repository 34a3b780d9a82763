package nodes

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/deadline"
)

// demotionTracker tracks the demotions of nodes.
type demotionTracker struct {
	// demotions are the active demotions. labels are the labels of the Nodes that cause them; nil once those are gone.
	demotions map[model.DemotionKey]*model.Demotion
	labels    map[model.DemotionKey]map[string]string
	// checks are the nodes that need an existence check, each with its hostname label, until TakePendingChecks returns
	// them. While the result is pending, a lift timer is scheduled.
	checks map[string]string

	timers  *deadline.Queue[timer]                // the Store's
	changed map[model.DemotionKey]*model.Demotion // not delivered yet; nil means that the demotion ended
}

func newDemotionTracker(later *deadline.Queue[timer]) demotionTracker {
	return demotionTracker{
		demotions: map[model.DemotionKey]*model.Demotion{}, labels: map[model.DemotionKey]map[string]string{},
		checks: map[string]string{}, timers: later,
	}
}

// observeLabels processes an event from the watch for the label of one demotion reason. node is nil if the watch
// reports a deletion: the label or the Node is gone.
func (a *demotionTracker) observeLabels(from *provider, name string, node *model.Node, now time.Time) {
	var demotion *model.Demotion
	if node != nil {
		if demotion = from.reason.FromLabels(node.Labels); demotion != nil && demotion.IsExpired(now) {
			demotion = nil
		}
	}
	key := model.DemotionKey{Node: name, Reason: from.reason}
	labels, isSaid := a.labels[key]
	delete(a.labels, key)
	switch {
	case demotion != nil:
		a.labels[key] = node.Labels
		a.clearStale(name)
		a.setDemotion(key, demotion)
	case node != nil:
		a.clearStale(name)
	case isSaid && a.demotions[key] != nil && !a.timers.Has(timer{lift, name}):
		a.checks[name] = labels[corev1.LabelHostname]
		a.timers.Schedule(timer{lift, name}, now.Add(checkTimeout))
	}
}

// setDemotion sets the demotion of a node for one reason; nil ends it.
func (a *demotionTracker) setDemotion(key model.DemotionKey, demotion *model.Demotion) {
	before := a.demotions[key]
	end := timer{demotionExpiry, key.Node}
	if demotion == nil {
		delete(a.demotions, key)
	} else {
		a.demotions[key] = demotion
	}
	a.timers.Cancel(end)
	if at, some := a.nextExpiry(key.Node); some {
		a.timers.Schedule(end, at)
	}
	if reflect.DeepEqual(before, demotion) {
		return
	}
	if a.changed == nil {
		a.changed = map[model.DemotionKey]*model.Demotion{}
	}
	a.changed[key] = demotion
}

// nextExpiry returns when the next of the demotions that labels of a Node cause ends.
func (a *demotionTracker) nextExpiry(node string) (at time.Time, some bool) {
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		key := model.DemotionKey{Node: node, Reason: reason}
		if demotion := a.demotions[key]; demotion != nil && demotion.Until != nil && a.labels[key] != nil &&
			(!some || demotion.Until.Before(at)) {
			at, some = *demotion.Until, true
		}
	}
	return at, some
}

// expireDemotions ends the demotions of a node that have expired.
func (a *demotionTracker) expireDemotions(node string, now time.Time) {
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		key := model.DemotionKey{Node: node, Reason: reason}
		if demotion := a.demotions[key]; demotion != nil && a.labels[key] != nil && demotion.IsExpired(now) {
			a.setDemotion(key, nil)
		}
	}
}

// TakePendingChecks returns the nodes that have needed an existence check since the last call, each with its hostname
// label.
func (a *demotionTracker) TakePendingChecks() map[string]string {
	questions := a.checks
	a.checks = map[string]string{}
	return questions
}

// HasPendingChecks reports whether there are any.
func (a *demotionTracker) HasPendingChecks() bool { return len(a.checks) > 0 }

// ResolveChecks processes the results of existence checks. The demotions of a deleted Node stay for
// deletedNodeRetention.
func (a *demotionTracker) ResolveChecks(areThere map[string]bool, now time.Time) {
	for node, isThere := range areThere {
		switch {
		case !a.timers.Has(timer{lift, node}): // the label is back, or the check timed out
		case isThere:
			a.clearStale(node)
		default:
			a.stopTracking(node)
			a.timers.Schedule(timer{lift, node}, now.Add(deletedNodeRetention))
		}
	}
}

// clearStale ends those demotions of a node that its labels no longer cause.
func (a *demotionTracker) clearStale(node string) {
	a.stopTracking(node)
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		if key := (model.DemotionKey{Node: node, Reason: reason}); a.labels[key] == nil {
			a.setDemotion(key, nil)
		}
	}
}

// stopTracking cancels an existence check of a node, or the retention after its deletion.
func (a *demotionTracker) stopTracking(node string) {
	delete(a.checks, node)
	a.timers.Cancel(timer{lift, node})
}
