package nodes

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/deadline"
)

// demotionTracker is what is held against nodes.
type demotionTracker struct {
	// demotions is what is in force, by reason; said are the labels of the Node that say it, nil once they no longer do.
	demotions map[model.DemotionKey]*model.Demotion
	labels    map[model.DemotionKey]map[string]string
	// checks are the nodes whose existence must be checked, each by the value of its label for the hostname, until they are
	// handed over. As long as there is no answer something is due: lift.
	checks map[string]string

	timers  *deadline.Queue[timer]                // the directory's
	changed map[model.DemotionKey]*model.Demotion // what was not handed over yet
}

func newDemotionTracker(later *deadline.Queue[timer]) demotionTracker {
	return demotionTracker{
		demotions: map[model.DemotionKey]*model.Demotion{}, labels: map[model.DemotionKey]map[string]string{},
		checks: map[string]string{}, timers: later,
	}
}

// observeLabels takes in what a Node says about itself for one reason; nil: it says nothing any more, or is gone.
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

// setDemotion puts in force what is held against a node for one reason.
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

// nextExpiry returns when something that a Node says against itself ends next.
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

// expireDemotions lifts those reasons against a node that have ended by now.
func (a *demotionTracker) expireDemotions(node string, now time.Time) {
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		key := model.DemotionKey{Node: node, Reason: reason}
		if demotion := a.demotions[key]; demotion != nil && a.labels[key] != nil && demotion.IsExpired(now) {
			a.setDemotion(key, nil)
		}
	}
}

// TakePendingChecks returns the nodes whose existence must be known, each by the value of its label for the
// hostname, since the last call.
func (a *demotionTracker) TakePendingChecks() map[string]string {
	questions := a.checks
	a.checks = map[string]string{}
	return questions
}

// HasPendingChecks reports whether there are any.
func (a *demotionTracker) HasPendingChecks() bool { return len(a.checks) > 0 }

// ResolveChecks takes in which of the nodes that were asked for exist, and which are gone. What was held against those stays for
// a while.
func (a *demotionTracker) ResolveChecks(areThere map[string]bool, now time.Time) {
	for node, isThere := range areThere {
		switch {
		case !a.timers.Has(timer{lift, node}): // the label is back, or there was no answer in time
		case isThere:
			a.clearStale(node)
		default:
			a.stopTracking(node)
			a.timers.Schedule(timer{lift, node}, now.Add(deletedNodeRetention))
		}
	}
}

// clearStale lifts what is held against an existing node but not said by the node itself any more.
func (a *demotionTracker) clearStale(node string) {
	a.stopTracking(node)
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		if key := (model.DemotionKey{Node: node, Reason: reason}); a.labels[key] == nil {
			a.setDemotion(key, nil)
		}
	}
}

// stopTracking forgets that a node was asked for, or is gone.
func (a *demotionTracker) stopTracking(node string) {
	delete(a.checks, node)
	a.timers.Cancel(timer{lift, node})
}
