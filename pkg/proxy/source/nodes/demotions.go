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
	// them. While the result is pending, a trackingExpiry timer is scheduled.
	checks map[string]string

	timers  *deadline.Queue[timer]                // the Store's
	changed map[model.DemotionKey]*model.Demotion // not delivered yet; nil means that the demotion ended
}

func newDemotionTracker(timers *deadline.Queue[timer]) demotionTracker {
	return demotionTracker{
		demotions: map[model.DemotionKey]*model.Demotion{}, labels: map[model.DemotionKey]map[string]string{},
		checks: map[string]string{}, timers: timers,
	}
}

// observeLabels processes an event from the watch for the label of one demotion reason. node is nil if the watch
// reports a deletion: the label or the Node is gone.
func (t *demotionTracker) observeLabels(source *provider, name string, node *model.Node, now time.Time) {
	var demotion *model.Demotion
	if node != nil {
		if demotion = source.reason.FromLabels(node.Labels); demotion != nil && demotion.IsExpired(now) {
			demotion = nil
		}
	}
	key := model.DemotionKey{Node: name, Reason: source.reason}
	labels, wasLabelled := t.labels[key]
	delete(t.labels, key)
	switch {
	case demotion != nil:
		t.labels[key] = node.Labels
		t.clearStale(name)
		t.setDemotion(key, demotion)
	case node != nil:
		t.clearStale(name)
	case wasLabelled && t.demotions[key] != nil && !t.timers.Has(timer{trackingExpiry, name}):
		t.checks[name] = labels[corev1.LabelHostname]
		t.timers.Schedule(timer{trackingExpiry, name}, now.Add(checkTimeout))
	}
}

// setDemotion sets the demotion of a node for one reason; nil ends it.
func (t *demotionTracker) setDemotion(key model.DemotionKey, demotion *model.Demotion) {
	before := t.demotions[key]
	end := timer{demotionExpiry, key.Node}
	if demotion == nil {
		delete(t.demotions, key)
	} else {
		t.demotions[key] = demotion
	}
	t.timers.Cancel(end)
	if at, ok := t.nextExpiry(key.Node); ok {
		t.timers.Schedule(end, at)
	}
	if reflect.DeepEqual(before, demotion) {
		return
	}
	if t.changed == nil {
		t.changed = map[model.DemotionKey]*model.Demotion{}
	}
	t.changed[key] = demotion
}

// nextExpiry returns the earliest end of those demotions of a node that its labels cause.
func (t *demotionTracker) nextExpiry(node string) (at time.Time, ok bool) {
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		key := model.DemotionKey{Node: node, Reason: reason}
		if demotion := t.demotions[key]; demotion != nil && demotion.Until != nil && t.labels[key] != nil &&
			(!ok || demotion.Until.Before(at)) {
			at, ok = *demotion.Until, true
		}
	}
	return at, ok
}

// expireDemotions ends the demotions of a node that have expired.
func (t *demotionTracker) expireDemotions(node string, now time.Time) {
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		key := model.DemotionKey{Node: node, Reason: reason}
		if demotion := t.demotions[key]; demotion != nil && t.labels[key] != nil && demotion.IsExpired(now) {
			t.setDemotion(key, nil)
		}
	}
}

// TakePendingChecks returns the nodes that have needed an existence check since the last call, each with its hostname
// label.
func (t *demotionTracker) TakePendingChecks() map[string]string {
	pending := t.checks
	t.checks = map[string]string{}
	return pending
}

// HasPendingChecks reports whether TakePendingChecks would return any node.
func (t *demotionTracker) HasPendingChecks() bool { return len(t.checks) > 0 }

// ResolveChecks processes the results of existence checks. The demotions of a deleted Node stay for
// deletedNodeRetention.
func (t *demotionTracker) ResolveChecks(results map[string]bool, now time.Time) {
	for node, exists := range results {
		switch {
		case !t.timers.Has(timer{trackingExpiry, node}): // the label is back, or the check timed out
		case exists:
			t.clearStale(node)
		default:
			t.stopTracking(node)
			t.timers.Schedule(timer{trackingExpiry, node}, now.Add(deletedNodeRetention))
		}
	}
}

// clearStale ends those demotions of a node that its labels no longer cause.
func (t *demotionTracker) clearStale(node string) {
	t.stopTracking(node)
	for reason := range model.DemotionReason(model.NumDemotionReasons) {
		if key := (model.DemotionKey{Node: node, Reason: reason}); t.labels[key] == nil {
			t.setDemotion(key, nil)
		}
	}
}

// stopTracking cancels an existence check of a node, or the retention after its deletion.
func (t *demotionTracker) stopTracking(node string) {
	delete(t.checks, node)
	t.timers.Cancel(timer{trackingExpiry, node})
}
