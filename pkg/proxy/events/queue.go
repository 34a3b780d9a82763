package events

import (
	"maps"
	"slices"
	"time"
)

// maxWaiting bounds the queue. At one in 10 seconds, what comes after them would be told a quarter of an hour late.
const maxWaiting = 100

// waiting is an event that nobody was told yet.
type waiting struct {
	event Event
	at    time.Time
}

// queue holds what waits, and lets namespaces take turns. What concerns the node itself has a turn of its own, under the name of no
// namespace. The zero value is empty.
type queue struct {
	of    map[string][]waiting // by namespace, none without an entry, the oldest first
	turns []string             // the namespaces, the next one first
	size  int
}

// push adds an entry. If the queue is full, one is dropped: the newest of the namespace that has most of them if that leaves it no
// fewer than the entry's own namespace, and otherwise the one that was to be added.
func (q *queue) push(entry waiting) (dropped waiting, isDropped bool) {
	namespace := entry.event.Regarding.Namespace
	if q.size == maxWaiting {
		fullest := q.fullest()
		if len(q.of[namespace])+1 >= len(q.of[fullest]) {
			return entry, true
		}
		dropped, isDropped = q.dropNewest(fullest), true
	}
	if q.of == nil {
		q.of = map[string][]waiting{}
	}
	if len(q.of[namespace]) == 0 {
		q.turns = append(q.turns, namespace)
	}
	q.of[namespace] = append(q.of[namespace], entry)
	q.size++
	return dropped, isDropped
}

// pop takes out the oldest entry of the namespace whose turn it is. The queue must not be empty.
func (q *queue) pop() waiting {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	entries := q.of[namespace]
	if len(entries) > 1 {
		q.of[namespace] = entries[1:]
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.of, namespace)
	}
	q.size--
	return entries[0]
}

// fullest returns the namespace with most entries; of several, the lexically smallest.
func (q *queue) fullest() string {
	return slices.MaxFunc(slices.Sorted(maps.Keys(q.of)), func(a, b string) int { return len(q.of[a]) - len(q.of[b]) })
}

// dropNewest takes out the newest entry of a namespace that has more than one.
func (q *queue) dropNewest(namespace string) waiting {
	entries := q.of[namespace]
	last := len(entries) - 1
	q.of[namespace] = entries[:last]
	q.size--
	return entries[last]
}
