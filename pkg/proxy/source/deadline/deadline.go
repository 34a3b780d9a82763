// Package deadline keeps a queue of deadlines that can be cancelled. It has no clock and no timer: the caller waits
// until the earliest deadline, and then pops those that have expired.
package deadline

import (
	"container/heap"
	"slices"
	"time"
)

// Queue is a queue of keys ordered by deadline, each key once. The zero value is empty. An operation takes time
// logarithmic in the number of keys.
type Queue[K comparable] struct {
	times map[K]time.Time
	order entries[K] // all keys of times, and some cancelled ones
}

// Schedule schedules a key, unless it already has a deadline.
func (q *Queue[K]) Schedule(key K, at time.Time) {
	if q.Has(key) {
		return
	}
	if q.times == nil {
		q.times = map[K]time.Time{}
	}
	q.times[key] = at
	heap.Push(&q.order, entry[K]{at, key})
}

// Has reports whether a key has a deadline.
func (q *Queue[K]) Has(key K) bool { _, has := q.times[key]; return has }

// Cancel removes a key from the queue.
func (q *Queue[K]) Cancel(key K) {
	delete(q.times, key)
	if len(q.order) > 2*len(q.times)+16 { // a key is scheduled and cancelled again and again
		q.order = slices.DeleteFunc(q.order, func(e entry[K]) bool { return !q.isScheduled(e) })
		heap.Init(&q.order)
	}
}

// Earliest returns the earliest deadline, and whether there is one.
func (q *Queue[K]) Earliest() (at time.Time, ok bool) {
	for len(q.order) > 0 && !q.isScheduled(q.order[0]) {
		heap.Pop(&q.order)
	}
	if len(q.order) == 0 {
		return time.Time{}, false
	}
	return q.order[0].at, true
}

// PopExpired removes and returns the keys that have expired, in the order of their deadlines.
func (q *Queue[K]) PopExpired(now time.Time) []K {
	var expired []K
	for at, ok := q.Earliest(); ok && !now.Before(at); at, ok = q.Earliest() {
		key := heap.Pop(&q.order).(entry[K]).key
		delete(q.times, key)
		expired = append(expired, key)
	}
	return expired
}

// Len returns the number of keys.
func (q *Queue[K]) Len() int { return len(q.times) }

// isScheduled reports whether an entry was not cancelled.
func (q *Queue[K]) isScheduled(e entry[K]) bool {
	at, has := q.times[e.key]
	return has && at.Equal(e.at)
}

type entry[K comparable] struct {
	at  time.Time
	key K
}

// entries implement heap.Interface.
type entries[K comparable] []entry[K]

func (e entries[K]) Len() int           { return len(e) }
func (e entries[K]) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries[K]) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *entries[K]) Push(item any)     { *e = append(*e, item.(entry[K])) }

func (e *entries[K]) Pop() any {
	last := len(*e) - 1
	item := (*e)[last]
	*e = (*e)[:last]
	return item
}
