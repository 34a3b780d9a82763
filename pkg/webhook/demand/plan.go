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
	// restless is after how many publications in an hour a Service is published only each restEvery. Otherwise it is once in
	// each interval at most, and not sooner than half of one after the last time.
	restless  = 10
	restEvery = 5 * time.Minute
)

// change is an object to be written, by the namespace and name of its Service.
type change struct {
	namespace, name string
	bytes           int     // in a watch
	off             float64 // how far off the published state is; the farthest comes first
}

func (c change) key() string { return c.namespace + "/" + c.name }

func (c change) share() fair.Share { return fair.Share{Namespace: c.namespace, Weight: c.bytes} }

// write is a change that has its turn.
type write struct {
	change
	at time.Time
}

// Waiting are the changes for which the budget, or a Service's own limit, has no room.
type Waiting struct {
	Changes int
	// Longest is the longest time that one has waited.
	Longest time.Duration
}

// planner says which changes are written when. The zero value has written nothing.
type planner struct {
	free  time.Time  // when the budget has room for the next one
	turns fair.Turns // all Namespaces that want something get equally many bytes
	// written are the times of the last hour by Service, and wanted is since when each change was wanted.
	written map[string][]time.Time
	wanted  map[string]time.Time
}

// plan returns the writes of an interval that begins now, in their order, and what has to wait. Changes are all that
// are wanted: those that wait are wanted again the next time, perhaps in another form.
func (p *planner) plan(now time.Time, interval time.Duration, proxies int, changes []change) ([]write, Waiting) {
	p.forget(now, changes)
	var writes []write
	planned := map[string]bool{}
	for _, next := range fair.InTurns(&p.turns, p.ready(now, interval, changes), change.share) {
		at := slices.MaxFunc([]time.Time{now, p.free}, time.Time.Compare)
		if !at.Before(now.Add(interval)) {
			break
		}
		writes = append(writes, write{next, at})
		planned[next.key()] = true
		p.turns.Serve(next.share())
		p.written[next.key()] = append(p.written[next.key()], at)
		p.free = at.Add(cost(next.bytes, proxies))
	}
	return writes, p.waiting(now, changes, planned)
}

// cost is how long a write leaves the budget without room for another.
func cost(bytes, proxies int) time.Duration {
	seconds := float64(bytes) * float64(proxies) / bytesPerSecond
	return max(time.Second/writesPerSecond, time.Duration(seconds*float64(time.Second)))
}

// forget drops what is no longer wanted, and writes of more than an hour ago.
func (p *planner) forget(now time.Time, changes []change) {
	if p.written == nil {
		p.written = map[string][]time.Time{}
	}
	if len(changes) == 0 {
		p.turns = fair.Turns{}
	}
	wanted := make(map[string]time.Time, len(changes))
	for _, c := range changes {
		wanted[c.key()] = now
		if since, was := p.wanted[c.key()]; was {
			wanted[c.key()] = since
		}
	}
	p.wanted = wanted
	hourAgo := now.Add(-time.Hour)
	for key, times := range p.written {
		if p.written[key] = slices.DeleteFunc(times, hourAgo.After); len(p.written[key]) == 0 {
			delete(p.written, key)
		}
	}
}

// ready returns the changes that may be written now, the farthest off first.
func (p *planner) ready(now time.Time, interval time.Duration, changes []change) []change {
	ready := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return p.rests(now, interval, c) })
	slices.SortFunc(ready, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.off, a.off), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return ready
}

// rests reports whether a Service was published so recently, or so often, that it has to wait.
func (p *planner) rests(now time.Time, interval time.Duration, c change) bool {
	times := p.written[c.key()]
	if len(times) == 0 {
		return false
	}
	since := now.Sub(times[len(times)-1])
	return since < interval/2 || len(times) >= restless && since < restEvery
}

func (p *planner) waiting(now time.Time, changes []change, planned map[string]bool) Waiting {
	var waiting Waiting
	for _, c := range changes {
		if !planned[c.key()] {
			waiting.Changes++
			waiting.Longest = max(waiting.Longest, now.Sub(p.wanted[c.key()]))
		}
	}
	return waiting
}
