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

// The cooldown after a dump: 49 times the CPU time that it took, so that all dumps together use at most 2 % of a core.
// Time that a dump waits for the CPU does not count, or a busy node would detect a dead node later. After a short dump
// the cooldown is short: UDP flows whose endpoint was removed wait for the next dump. No user waits longer than
// maxCooldown, so if a dump takes more than 41 ms, dumps use more than 2 %.
const (
	cooldownFactor = 49
	maxCooldown    = 2 * time.Second
)

// DumpScheduler is a table for several users. Concurrent queries share one dump, and the next ones wait for the
// cooldown. Without a user it does nothing.
//
// A dump queries the kernel once for each filter that no other filter of the dump covers: two short lists take less
// time than one of everything.
type DumpScheduler struct {
	Table // for all but dumps

	onDump  func(DumpStats)
	cpuTime func() time.Duration // the CPU time of this thread
	// token is held by the user that dumps, or waits for the cooldown, on behalf of all waiting users.
	token chan struct{}
	next  time.Time // when to dump again; guarded by token

	mutex   sync.Mutex
	waiting []*waiter
}

// DumpStats describes one dump.
type DumpStats struct {
	Took      time.Duration
	Truncated int // queries that ended early
}

// NewDumpScheduler returns a scheduler for a table. It calls looked after each dump, unless looked is nil.
func NewDumpScheduler(table Table, looked func(DumpStats)) *DumpScheduler {
	l := &DumpScheduler{Table: table, onDump: looked, cpuTime: processorTime, token: make(chan struct{}, 1)}
	l.token <- struct{}{}
	return l
}

// waiter is a user that waits for a dump.
type waiter struct {
	ctx     context.Context
	queries func() []Query
	results chan []Result
}

// Dump implements Table. It waits for the cooldown, 2 s at most, and for the dumps of earlier users.
func (l *DumpScheduler) Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error) {
	results, err := l.Query(ctx, func() []Query { return []Query{{filter, each}} })
	if err != nil {
		return 0, err
	}
	return results[0].Took, results[0].Err
}

// Query selects entries for a user; see Table.Dump.
type Query struct {
	Filter Filter
	Each   func(*Entry) bool
}

// Result is the outcome of a query; see Table.Dump.
type Result struct {
	Took time.Duration
	Err  error
}

// Query runs several queries in one dump, and returns a result for each. It calls questions once, when that dump
// starts, because queries may depend on what changes during the wait. If ctx ends before that, the error is that of
// ctx, and nothing was queried.
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
	return <-u.results, nil // a dump has started, and uses each
}

// waitCooldown waits until the next dump is due. The caller holds the token.
func (l *DumpScheduler) waitCooldown(ctx context.Context) {
	due := time.NewTimer(time.Until(l.next))
	defer due.Stop()
	select {
	case <-due.C:
	case <-ctx.Done():
	}
}

// isStarted reports whether a dump for a user has started.
func (l *DumpScheduler) isStarted(u *waiter) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return !slices.Contains(l.waiting, u)
}

// cancel removes a user from those that wait. It reports false if a dump for it has started.
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

// processorTime returns the CPU time that this thread has used.
func processorTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		panic(fmt.Sprintf("read CPU time of the thread: %v", err)) // every Linux has that clock
	}
	return time.Duration(used.Nano())
}

// dump serves all waiting users, even if the one that dumps has stopped waiting.
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
			err = nil // each request records by itself whether it was truncated
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

// request is a query and its result.
type request struct {
	Query
	ctx    context.Context
	stop   error // why it gets no more entries; nil if it does
	result Result
}

// group is the requests that one dump serves.
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

// dispatch passes an entry to all requests that select it. It reports false once no request needs more entries.
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
