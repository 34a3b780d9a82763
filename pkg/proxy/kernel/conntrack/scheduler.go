//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How long to rest after a look: 49 times the processor time that it took, so that all looks together take no more than a
// fiftieth of a processor. Time that a look spent waiting for a busy processor does not count, or a busy node would
// find out later that another node is dead. A short look is followed soon by the next: a UDP flow whose endpoint left
// waits for it. And nobody waits longer than restAtMost, so where a look takes more than 41 ms, looks take more than a
// fiftieth.
const (
	cooldownFactor = 49
	maxCooldown    = 2 * time.Second
)

// DumpScheduler is a table for several users. Those who ask for a dump at the same time share one look, and after a look the next
// ones wait until it has rested. Without a user it does nothing.
//
// A look asks the kernel once for each filter that no other one of the look covers: two short lists take less time than
// one of everything.
type DumpScheduler struct {
	Table // deletes

	onDump  func(DumpStats)
	cpuTime func() time.Duration // the processor time of this thread
	// token is held by the user who looks, or rests before looking, on behalf of all who wait.
	token chan struct{}
	next  time.Time // when to look again; the holder of turn's

	mutex   sync.Mutex
	waiting []*waiter
}

// DumpStats is what one look did.
type DumpStats struct {
	Took      time.Duration
	Truncated int // users who did not want all
}

// NewDumpScheduler returns looks at a table. It calls looked after each, unless that is nil.
func NewDumpScheduler(table Table, looked func(DumpStats)) *DumpScheduler {
	l := &DumpScheduler{Table: table, onDump: looked, cpuTime: processorTime, token: make(chan struct{}, 1)}
	l.token <- struct{}{}
	return l
}

// waiter waits for a look.
type waiter struct {
	ctx     context.Context
	queries func() []Query
	results chan []Result
}

// Dump is that of Table. It waits for its turn: 2 s at most, and the looks of those who came before.
func (l *DumpScheduler) Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error) {
	results, err := l.Query(ctx, func() []Query { return []Query{{filter, each}} })
	if err != nil {
		return 0, err
	}
	return results[0].Took, results[0].Err
}

// Query is what a user asks the table for; see Table.Dump.
type Query struct {
	Filter Filter
	Each   func(*Entry) bool
}

// Result is how a question ended; see Table.Dump.
type Result struct {
	Took time.Duration
	Err  error
}

// Query asks several questions in one look, and returns an answer to each. It calls questions once, when that look begins:
// they may depend on what changes while it waits. The error is that of ctx if it ends before, and nothing was asked then.
func (l *DumpScheduler) Query(ctx context.Context, questions func() []Query) ([]Result, error) {
	u := &waiter{ctx, questions, make(chan []Result, 1)}
	l.mutex.Lock()
	l.waiting = append(l.waiting, u)
	l.mutex.Unlock()
	select {
	case results := <-u.results:
		return results, nil
	case <-ctx.Done():
	case <-l.token:
		if !l.isStarted(u) {
			l.waitCooldown(ctx)
			if ctx.Err() == nil {
				l.dump(context.WithoutCancel(ctx))
			}
		}
		l.token <- struct{}{}
	}
	if l.cancel(u) {
		return nil, ctx.Err()
	}
	return <-u.results, nil // a look has begun, and uses each
}

// waitCooldown waits until the next look is due. The turn is held.
func (l *DumpScheduler) waitCooldown(ctx context.Context) {
	due := time.NewTimer(time.Until(l.next))
	defer due.Stop()
	select {
	case <-due.C:
	case <-ctx.Done():
	}
}

// isStarted reports whether a look has begun to serve a user.
func (l *DumpScheduler) isStarted(u *waiter) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return !slices.Contains(l.waiting, u)
}

// cancel takes a user out of those who wait. It reports false if a look has begun to serve it.
func (l *DumpScheduler) cancel(u *waiter) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	i := slices.Index(l.waiting, u)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// processorTime is how much processor time this thread has used.
func processorTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		panic(fmt.Sprintf("reading the processor time of a thread: %v", err)) // every Linux has that clock
	}
	return time.Duration(used.Nano())
}

// dump serves all who wait, even if the one who looks has stopped waiting.
func (l *DumpScheduler) dump(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.mutex.Lock()
	users := l.waiting
	l.waiting = nil
	l.mutex.Unlock()
	asked := make([][]*request, len(users))
	for i, u := range users {
		for _, query := range u.queries() {
			asked[i] = append(asked[i], &request{Query: query, ctx: u.ctx})
		}
	}
	began, spent := time.Now(), l.cpuTime()
	var stats DumpStats
	groups := groupByFilter(slices.Concat(asked...))
	for _, of := range groups {
		took, err := l.Table.Dump(ctx, of.filter, of.dispatch)
		if errors.Is(err, ErrTruncated) {
			err = nil // each request notes by itself whether it was cut off
		}
		for _, r := range of.requests {
			if errors.Is(r.stop, ErrTruncated) {
				stats.Truncated++
			}
			r.result = Result{took, errors.Join(r.stop, err)}
		}
	}
	stats.Took = time.Since(began)
	l.next = time.Now().Add(min(cooldownFactor*(l.cpuTime()-spent), maxCooldown))
	if l.onDump != nil && len(groups) > 0 {
		l.onDump(stats)
	}
	for i, u := range users {
		results := make([]Result, len(asked[i]))
		for k, r := range asked[i] {
			results[k] = r.result
		}
		u.results <- results
	}
}

// request is a question and its answer.
type request struct {
	Query
	ctx    context.Context
	stop   error // why it wants no more entries
	result Result
}

// group are requests that one dump serves.
type group struct {
	filter   Filter
	requests []*request
}

// groupByFilter returns the requests in groups, each with a filter that covers all others of the group.
func groupByFilter(requests []*request) []group {
	var groups []group
	for _, r := range requests {
		joined := group{r.Filter, []*request{r}}
		var others []group
		for _, g := range groups {
			switch {
			case g.filter.covers(&joined.filter):
				joined = group{g.filter, append(g.requests, joined.requests...)}
			case joined.filter.covers(&g.filter):
				joined.requests = append(g.requests, joined.requests...)
			default:
				others = append(others, g)
			}
		}
		groups = append(others, joined)
	}
	return groups
}

// dispatch passes an entry to all who want it. It reports false once nobody wants any more entries.
func (g *group) dispatch(e *Entry) bool {
	isWanted := false
	for _, r := range g.requests {
		if r.stop == nil {
			r.deliver(e)
		}
		isWanted = isWanted || r.stop == nil
	}
	return isWanted
}

func (r *request) deliver(e *Entry) {
	switch {
	case r.ctx.Err() != nil:
		r.stop = r.ctx.Err()
	case r.Filter.Matches(e) && !r.Each(e):
		r.stop = ErrTruncated
	}
}
