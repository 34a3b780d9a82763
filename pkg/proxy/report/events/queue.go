package events

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// maxWaiting limits the queue. At one in 10 seconds, an event behind 100 others would be a quarter of an hour late.
const maxWaiting = 100

// queuedEvent is an event that is not created yet, and when it was reported.
type queuedEvent struct {
	event      Event
	reportedAt time.Time
}

func (e queuedEvent) share() fair.Share {
	return fair.Share{Namespace: e.event.Regarding.Namespace, Weight: 1}
}

// queue holds the waiting events. It is fair to namespaces. Events about the node itself belong to the empty namespace.
type queue struct {
	entries  []queuedEvent // oldest first
	fairness fair.Queue
}

// push adds an entry. If the queue is full, it drops the newest entry of a namespace with the most entries: that of the
// new entry, or the one that reported last.
func (q *queue) push(entry queuedEvent) (dropped queuedEvent, isDropped bool) {
	q.entries = append(q.entries, entry)
	if len(q.entries) <= maxWaiting {
		return queuedEvent{}, false
	}
	order := fair.Order(q.entries, queuedEvent.share)
	return q.remove(order[len(order)-1]), true
}

// pop removes the next entry in fair order. The queue must not be empty.
func (q *queue) pop() queuedEvent {
	next := q.remove(fair.Schedule(&q.fairness, q.entries, queuedEvent.share)[0])
	q.fairness.OnServed(next.share())
	if len(q.entries) == 0 {
		q.fairness = fair.Queue{}
	}
	return next
}

func (q *queue) remove(entry queuedEvent) queuedEvent {
	i := slices.Index(q.entries, entry)
	q.entries = slices.Delete(q.entries, i, i+1)
	return entry
}
