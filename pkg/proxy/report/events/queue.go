package events

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// maxWaiting bounds the queue. At one in 10 seconds, later ones would be a quarter of an hour late.
const maxWaiting = 100

// queuedEvent is an event that is not created yet, and when it was reported.
type queuedEvent struct {
	event Event
	at    time.Time
}

func (w queuedEvent) share() fair.Share {
	return fair.Share{Namespace: w.event.Regarding.Namespace, Weight: 1}
}

// queue holds what waits. Namespaces take turns. Events about the node itself have the turn of the empty namespace.
type queue struct {
	entries  []queuedEvent // in the order in which they came
	fairness fair.Queue
}

// push adds an entry. If that is one too many, it drops the last entry of a namespace with most entries: the new
// entry's namespace, or the one that reported last.
func (q *queue) push(entry queuedEvent) (dropped queuedEvent, isDropped bool) {
	q.entries = append(q.entries, entry)
	if len(q.entries) <= maxWaiting {
		return queuedEvent{}, false
	}
	order := fair.Order(q.entries, queuedEvent.share)
	return q.take(order[len(order)-1]), true
}

// pop takes out the entry whose turn it is. The queue must not be empty.
func (q *queue) pop() queuedEvent {
	taken := q.take(fair.Schedule(&q.fairness, q.entries, queuedEvent.share)[0])
	q.fairness.OnServed(taken.share())
	if len(q.entries) == 0 {
		q.fairness = fair.Queue{}
	}
	return taken
}

func (q *queue) take(entry queuedEvent) queuedEvent {
	i := slices.Index(q.entries, entry)
	q.entries = slices.Delete(q.entries, i, i+1)
	return entry
}
