// Package writequeue decides which ServiceDemands are written when: each write goes to every proxy.
package writequeue

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// The budget of writes.
const (
	bytesPerSecond = 1_000_000 // over all proxies
	// MaxPerSecond is the maximum number of writes in a second.
	MaxPerSecond = 10
	// A Service is published once each interval at most, and not within half an interval after the last time. If it was
	// published throttleAfter times in the last hour, others come first until throttleInterval after the last time.
	throttleAfter    = 10
	throttleInterval = 5 * time.Minute
)

// serverOverhead is how many bytes the API server adds to a new object, such as managedFields.
const serverOverhead = 700

// Change is a pending write of the object of a Service. Before is nil if it is created, After is nil if it is deleted.
type Change struct {
	Before, After *v1alpha1.ServiceDemand
	// Skew is the skew against the published state. The largest comes first.
	Skew            float64
	namespace, name string
	bytes           int // size of a watch event
}

// NewChange returns a change. One of the objects may be nil.
func NewChange(before, after *v1alpha1.ServiceDemand, skew float64) Change {
	object, overhead := cmp.Or(after, before), 0
	if before == nil {
		overhead = serverOverhead
	}
	text, _ := json.Marshal(object) //nolint:errchkjson // of numbers and strings
	return Change{before, after, skew, object.Namespace, object.Name, len(text) + overhead}
}

// Key returns the name of the Service, as namespace/name.
func (c Change) Key() string { return c.namespace + "/" + c.name }

// compare orders changes by skew, the largest first.
func (c Change) compare(other Change) int {
	return cmp.Or(cmp.Compare(other.Skew, c.Skew), cmp.Compare(c.namespace, other.namespace), cmp.Compare(c.name, other.name))
}

func (c Change) share() fair.Share { return fair.Share{Namespace: c.namespace, Weight: c.bytes} }

// Write is a change that is within the budget, and when it is written.
type Write struct {
	Change
	At time.Time
}

// Queue schedules writes. The zero value has scheduled nothing.
type Queue struct {
	nextSlot time.Time  // when the budget allows the next write
	served   fair.Queue // all Namespaces with changes get the same number of bytes
	// writeTimes are the write times of the last hour, and queuedSince is when each change was first requested since then,
	// by Service.
	writeTimes  map[string][]time.Time
	queuedSince map[string]time.Time
}

// Plan returns the writes of an interval that begins now, in order, and the backlog. changes must contain all pending
// changes: those in the backlog are passed again in the next interval, perhaps with other content.
func (q *Queue) Plan(now time.Time, interval time.Duration, proxies int, changes []Change) ([]Write, v1alpha1.DemandBacklog) {
	q.expire(now, changes)
	var writes []Write
	planned := map[string]bool{}
	for _, ready := range q.ready(now, interval, changes) {
		for _, c := range fair.Schedule(&q.served, ready, Change.share) {
			writeTime := slices.MaxFunc([]time.Time{now, q.nextSlot}, time.Time.Compare)
			if !writeTime.Before(now.Add(interval)) {
				break
			}
			writes = append(writes, Write{c, writeTime})
			planned[c.Key()] = true
			delete(q.queuedSince, c.Key())
			q.served.OnServed(c.share())
			q.writeTimes[c.Key()] = append(q.writeTimes[c.Key()], writeTime)
			q.nextSlot = writeTime.Add(cost(c.bytes, proxies))
		}
	}
	return writes, q.backlog(now, changes, planned)
}

// cost returns how much time of the budget a write takes.
func cost(bytes, proxies int) time.Duration {
	seconds := float64(bytes) * float64(proxies) / bytesPerSecond
	return max(time.Second/MaxPerSecond, time.Duration(seconds*float64(time.Second)))
}

// expire drops changes that are no longer pending, and writes from more than an hour ago.
func (q *Queue) expire(now time.Time, changes []Change) {
	if q.writeTimes == nil {
		q.writeTimes = map[string][]time.Time{}
	}
	if len(changes) == 0 {
		q.served = fair.Queue{}
	}
	pending := make(map[string]time.Time, len(changes))
	for _, c := range changes {
		pending[c.Key()] = now
		if since, isPending := q.queuedSince[c.Key()]; isPending {
			pending[c.Key()] = since
		}
	}
	q.queuedSince = pending
	hourAgo := now.Add(-time.Hour)
	for key, times := range q.writeTimes {
		if q.writeTimes[key] = slices.DeleteFunc(times, hourAgo.After); len(q.writeTimes[key]) == 0 {
			delete(q.writeTimes, key)
		}
	}
}

// ready returns the changes that may be written now, each list with the largest skew first. The second list may use what
// the first one leaves of the budget: the changes of Services that were published often and recently.
func (q *Queue) ready(now time.Time, interval time.Duration, changes []Change) (lists [2][]Change) {
	for _, c := range changes {
		times, list := q.writeTimes[c.Key()], 0
		if len(times) > 0 {
			since := now.Sub(times[len(times)-1])
			if since < interval/2 {
				continue
			}
			if len(times) >= throttleAfter && since < throttleInterval {
				list = 1
			}
		}
		lists[list] = append(lists[list], c)
	}
	for _, list := range lists {
		slices.SortFunc(list, Change.compare)
	}
	return lists
}

// backlog describes the changes that are not planned.
func (q *Queue) backlog(now time.Time, changes []Change, planned map[string]bool) v1alpha1.DemandBacklog {
	backlog := v1alpha1.DemandBacklog{Services: map[string]int64{}}
	for _, c := range slices.SortedFunc(slices.Values(changes), Change.compare) {
		if planned[c.Key()] {
			continue
		}
		seconds := int64(now.Sub(q.queuedSince[c.Key()]) / time.Second)
		backlog.Waiting++
		backlog.LongestSeconds = max(backlog.LongestSeconds, seconds)
		if backlog.Fits(c.Key()) {
			backlog.Services[c.Key()] = seconds
		}
	}
	return backlog
}
