package events

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// maxWaiting bounds the queue. At one in 10 seconds, later ones would be a quarter of an hour late.
const maxWaiting = 100

// waiting is an event that is not created yet, and when it was reported.
type waiting struct {
	event Event
	at    time.Time
}

func (w waiting) share() fair.Share {
	return fair.Share{Namespace: w.event.Regarding.Namespace, Weight: 1}
}

// queue holds what waits. Namespaces take turns. Events about the node itself have the turn of the empty namespace.
type queue struct {
	entries []waiting // in the order in which they came
	turns   fair.Turns
}

// push adds an entry. If that is one too many, it drops the last entry of a namespace with most entries: the new
// entry's namespace, or the one that reported last.
func (q *queue) push(entry waiting) (dropped waiting, isDropped bool) {
	q.entries = append(q.entries, entry)
	if len(q.entries) <= maxWaiting {
		return waiting{}, false
	}
	order := fair.Order(q.entries, waiting.share)
	return q.take(order[len(order)-1]), true
}

// pop takes out the entry whose turn it is. The queue must not be empty.
func (q *queue) pop() waiting {
	taken := q.take(fair.InTurns(&q.turns, q.entries, waiting.share)[0])
	q.turns.Serve(taken.share())
	if len(q.entries) == 0 {
		q.turns = fair.Turns{}
	}
	return taken
}

func (q *queue) take(entry waiting) waiting {
	i := slices.Index(q.entries, entry)
	q.entries = slices.Delete(q.entries, i, i+1)
	return entry
}
