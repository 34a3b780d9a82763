package demand

import (
	"cmp"
	"maps"
	"slices"
	"time"
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
	free time.Time // when the budget has room for the next one
	// clock and turns implement fair queueing: a Namespace has its turn at the number of bytes that it has got, counted
	// from the clock at the time when it begins to want something. So all Namespaces that want something get equally many
	// bytes.
	clock float64
	turns map[string]float64
	// written are the times of the last hour by Service, and wanted is since when each change was wanted.
	written map[string][]time.Time
	wanted  map[string]time.Time
}

// plan returns the writes of an interval that begins now, in their order, and what has to wait. Changes are all that
// are wanted: those that wait are wanted again the next time, perhaps in another form.
func (p *planner) plan(now time.Time, interval time.Duration, proxies int, changes []change) ([]write, Waiting) {
	p.forget(now, changes)
	queues := p.queues(now, interval, changes)
	var writes []write
	planned := map[string]bool{}
	for at := later(now, p.free); len(queues) > 0 && at.Before(now.Add(interval)); at = p.free {
		namespace := p.next(queues)
		next := queues[namespace][0]
		if queues[namespace] = queues[namespace][1:]; len(queues[namespace]) == 0 {
			delete(queues, namespace)
		}
		writes = append(writes, write{next, at})
		planned[next.key()] = true
		p.clock = p.turns[namespace]
		p.turns[namespace] += float64(next.bytes)
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forget drops what is no longer wanted, and writes of more than an hour ago.
func (p *planner) forget(now time.Time, changes []change) {
	if p.turns == nil {
		p.turns, p.written, p.wanted = map[string]float64{}, map[string][]time.Time{}, map[string]time.Time{}
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
	maps.DeleteFunc(p.turns, func(_ string, turn float64) bool { return turn <= p.clock || len(changes) == 0 })
}

// queues returns the changes of each Namespace that may be written now, the farthest off first, and gives each a turn.
func (p *planner) queues(now time.Time, interval time.Duration, changes []change) map[string][]change {
	queues := map[string][]change{}
	for _, c := range changes {
		if p.rests(now, interval, c) {
			continue
		}
		queues[c.namespace] = append(queues[c.namespace], c)
		p.turns[c.namespace] = max(p.turns[c.namespace], p.clock)
	}
	for _, queue := range queues {
		slices.SortFunc(queue, func(a, b change) int { return cmp.Or(cmp.Compare(b.off, a.off), cmp.Compare(a.name, b.name)) })
	}
	return queues
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

// next returns the Namespace whose turn it is: of several, the one with the change that is farthest off.
func (p *planner) next(queues map[string][]change) string {
	return slices.MinFunc(slices.Collect(maps.Keys(queues)), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.turns[a], p.turns[b]), cmp.Compare(queues[b][0].off, queues[a][0].off), cmp.Compare(a, b))
	})
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
