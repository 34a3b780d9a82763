package demand

import (
	"cmp"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
)

// The budget of publications. Each goes to every proxy that follows ServiceDemands.
const (
	bytesPerSecond  = 1_000_000 // over all proxies
	writesPerSecond = 10
	// throttleAfter is after how many publications in an hour a Service is published only each restEvery. Otherwise it is once in
	// each interval at most, and not sooner than half of one after the last time.
	throttleAfter    = 10
	throttleInterval = 5 * time.Minute
)

// change is an object to be written, by the namespace and name of its Service.
type change struct {
	namespace, name string
	bytes           int     // in a watch
	off             float64 // how far off the published state is; the farthest comes first
}

func (c change) key() string { return c.namespace + "/" + c.name }

func (c change) share() fair.Share { return fair.Share{Namespace: c.namespace, Weight: c.bytes} }

// scheduledWrite is a change that has its turn.
type scheduledWrite struct {
	change
	at time.Time
}

// Backlog are the changes for which the budget, or a Service's own limit, has no room.
type Backlog struct {
	Changes int
	// Longest is the longest time that one has waited.
	Longest time.Duration
}

// fairQueue says which changes are written when. The zero value has written nothing.
type fairQueue struct {
	nextSlot    time.Time      // when the budget has room for the next one
	virtualTime fair.Queue // all Namespaces that want something get equally many bytes
	// written are the times of the last hour by Service, and wanted is since when each change was wanted.
	written     map[string][]time.Time
	queuedSince map[string]time.Time
}

// plan returns the writes of an interval that begins now, in their order, and what has to wait. Changes are all that
// are wanted: those that wait are wanted again the next time, perhaps in another form.
func (p *fairQueue) plan(now time.Time, interval time.Duration, proxies int, changes []change) ([]scheduledWrite, Backlog) {
	p.expire(now, changes)
	var writes []scheduledWrite
	planned := map[string]bool{}
	for _, next := range fair.Schedule(&p.virtualTime, p.ready(now, interval, changes), change.share) {
		at := slices.MaxFunc([]time.Time{now, p.nextSlot}, time.Time.Compare)
		if !at.Before(now.Add(interval)) {
			break
		}
		writes = append(writes, scheduledWrite{next, at})
		planned[next.key()] = true
		p.virtualTime.OnServed(next.share())
		p.written[next.key()] = append(p.written[next.key()], at)
		p.nextSlot = at.Add(cost(next.bytes, proxies))
	}
	return writes, p.waiting(now, changes, planned)
}

// cost is how long a write leaves the budget without room for another.
func cost(bytes, proxies int) time.Duration {
	seconds := float64(bytes) * float64(proxies) / bytesPerSecond
	return max(time.Second/writesPerSecond, time.Duration(seconds*float64(time.Second)))
}

// expire drops what is no longer wanted, and writes of more than an hour ago.
func (p *fairQueue) expire(now time.Time, changes []change) {
	if p.written == nil {
		p.written = map[string][]time.Time{}
	}
	if len(changes) == 0 {
		p.virtualTime = fair.Queue{}
	}
	wanted := make(map[string]time.Time, len(changes))
	for _, c := range changes {
		wanted[c.key()] = now
		if since, was := p.queuedSince[c.key()]; was {
			wanted[c.key()] = since
		}
	}
	p.queuedSince = wanted
	hourAgo := now.Add(-time.Hour)
	for key, times := range p.written {
		if p.written[key] = slices.DeleteFunc(times, hourAgo.After); len(p.written[key]) == 0 {
			delete(p.written, key)
		}
	}
}

// ready returns the changes that may be written now, the farthest off first.
func (p *fairQueue) ready(now time.Time, interval time.Duration, changes []change) []change {
	ready := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return p.isThrottled(now, interval, c) })
	slices.SortFunc(ready, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.off, a.off), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return ready
}

// isThrottled reports whether a Service was published so recently, or so often, that it has to wait.
func (p *fairQueue) isThrottled(now time.Time, interval time.Duration, c change) bool {
	times := p.written[c.key()]
	if len(times) == 0 {
		return false
	}
	since := now.Sub(times[len(times)-1])
	return since < interval/2 || len(times) >= throttleAfter && since < throttleInterval
}

func (p *fairQueue) waiting(now time.Time, changes []change, planned map[string]bool) Backlog {
	var waiting Backlog
	for _, c := range changes {
		if !planned[c.key()] {
			waiting.Changes++
			waiting.Longest = max(waiting.Longest, now.Sub(p.queuedSince[c.key()]))
		}
	}
	return waiting
}
