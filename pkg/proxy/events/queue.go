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

// queue holds what waits. Namespaces take turns, in the order of their first entries. What concerns the node itself
// has a turn of its own, that of the empty namespace.
type queue []waiting

// push adds an entry. If there are too many then, it drops the last one of a namespace that has most: that of the
// entry itself, or the one that was reported last.
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

// pop takes out the first entry, and moves the others of its namespace behind those of all other namespaces. The queue
// must not be empty.
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
