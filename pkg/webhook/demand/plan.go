package demand

import (
	"cmp"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// The budget of publications. Each one goes to every proxy that watches ServiceDemands.
const (
	bytesPerSecond  = 1_000_000 // over all proxies
	writesPerSecond = 10
	// A Service is published once each interval at most, and not within half an interval after the last time. If it was
	// published throttleAfter times in the last hour, others come first until throttleInterval after the last time.
	throttleAfter    = 10
	throttleInterval = 5 * time.Minute
)

// change is a pending write of an object, by the namespace and name of its Service.
type change struct {
	namespace, name string
	bytes           int     // size of a watch event
	skew            float64 // the skew against the published state; the largest comes first
}

func (c change) key() string { return c.namespace + "/" + c.name }

// compare orders changes by skew, the largest first.
func (c change) compare(other change) int {
	return cmp.Or(cmp.Compare(other.skew, c.skew), cmp.Compare(c.namespace, other.namespace), cmp.Compare(c.name, other.name))
}

func (c change) share() fair.Share { return fair.Share{Namespace: c.namespace, Weight: c.bytes} }

// scheduledWrite is a change that is within the budget.
type scheduledWrite struct {
	change
	at time.Time
}

// fairQueue schedules writes. The zero value has scheduled nothing.
type fairQueue struct {
	nextSlot time.Time  // when the budget allows the next write
	served   fair.Queue // all Namespaces with changes get the same number of bytes
	// writeTimes are the write times of the last hour, and queuedSince is when each change was first requested since then,
	// by Service.
	writeTimes  map[string][]time.Time
	queuedSince map[string]time.Time
}

// plan returns the writes of an interval that begins now, in order, and the backlog. changes must contain all pending
// changes: those in the backlog are passed again in the next interval, perhaps with other content.
func (q *fairQueue) plan(now time.Time, interval time.Duration, proxies int, changes []change) ([]scheduledWrite, v1alpha1.DemandBacklog) {
	q.expire(now, changes)
	var writes []scheduledWrite
	planned := map[string]bool{}
	for _, ready := range q.ready(now, interval, changes) {
		for _, c := range fair.Schedule(&q.served, ready, change.share) {
			writeTime := slices.MaxFunc([]time.Time{now, q.nextSlot}, time.Time.Compare)
			if !writeTime.Before(now.Add(interval)) {
				break
			}
			writes = append(writes, scheduledWrite{c, writeTime})
			planned[c.key()] = true
			delete(q.queuedSince, c.key())
			q.served.OnServed(c.share())
			q.writeTimes[c.key()] = append(q.writeTimes[c.key()], writeTime)
			q.nextSlot = writeTime.Add(cost(c.bytes, proxies))
		}
	}
	return writes, q.backlog(now, changes, planned)
}

// cost returns how much time of the budget a write takes.
func cost(bytes, proxies int) time.Duration {
	seconds := float64(bytes) * float64(proxies) / bytesPerSecond
	return max(time.Second/writesPerSecond, time.Duration(seconds*float64(time.Second)))
}

// expire drops changes that are no longer pending, and writes from more than an hour ago.
func (q *fairQueue) expire(now time.Time, changes []change) {
	if q.writeTimes == nil {
		q.writeTimes = map[string][]time.Time{}
	}
	if len(changes) == 0 {
		q.served = fair.Queue{}
	}
	pending := make(map[string]time.Time, len(changes))
	for _, c := range changes {
		pending[c.key()] = now
		if since, isPending := q.queuedSince[c.key()]; isPending {
			pending[c.key()] = since
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
func (q *fairQueue) ready(now time.Time, interval time.Duration, changes []change) (lists [2][]change) {
	for _, c := range changes {
		times, list := q.writeTimes[c.key()], 0
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
		slices.SortFunc(list, change.compare)
	}
	return lists
}

// backlog describes the changes that are not planned.
func (q *fairQueue) backlog(now time.Time, changes []change, planned map[string]bool) v1alpha1.DemandBacklog {
	backlog := v1alpha1.DemandBacklog{Services: map[string]int64{}}
	for _, c := range slices.SortedFunc(slices.Values(changes), change.compare) {
		if planned[c.key()] {
			continue
		}
		seconds := int64(now.Sub(q.queuedSince[c.key()]) / time.Second)
		backlog.Waiting++
		backlog.LongestSeconds = max(backlog.LongestSeconds, seconds)
		if backlog.Fits(c.key()) {
			backlog.Services[c.key()] = seconds
		}
	}
	return backlog
}
