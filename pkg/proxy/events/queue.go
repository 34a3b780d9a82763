package events

import (
	"slices"
	"time"
)

// maxWaiting bounds the queue. At one in 10 seconds, later ones would be a quarter of an hour late.
const maxWaiting = 100

// waiting is an event that is not created yet, and when it was reported.
type waiting struct {
	event Event
	at    time.Time
}

func (w waiting) namespace() string { return w.event.Regarding.Namespace }

// queue holds what waits. Namespaces take turns, in the order of their first entries. Events about the node itself have
// the turn of the empty namespace.
type queue []waiting

// push adds an entry. If that is one too many, it drops the last entry of a namespace with most entries: the new
// entry's namespace, or the one that reported last.
func (q *queue) push(entry waiting) (dropped waiting, isDropped bool) {
	*q = append(*q, entry)
	if len(*q) <= maxWaiting {
		return waiting{}, false
	}
	sizes, most := map[string]int{}, 0
	for _, entry := range *q {
		sizes[entry.namespace()]++
		most = max(most, sizes[entry.namespace()])
	}
	last := len(*q) - 1
	for sizes[(*q)[last].namespace()] < most {
		last--
	}
	dropped = (*q)[last]
	*q = slices.Delete(*q, last, last+1)
	return dropped, true
}

// pop takes out the first entry, and moves its namespace's other entries behind those of all other namespaces. The
// queue must not be empty.
func (q *queue) pop() waiting {
	first := (*q)[0]
	order := func(w waiting) int {
		if w.namespace() == first.namespace() {
			return 1
		}
		return 0
	}
	*q = (*q)[1:]
	slices.SortStableFunc(*q, func(a, b waiting) int { return order(a) - order(b) })
	return first
}
