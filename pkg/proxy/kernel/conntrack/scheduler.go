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
	token    chan struct{}
	nextDump time.Time // earliest start of the next dump; guarded by token

	mutex   sync.Mutex
	waiting []*waiter
}

// DumpStats describes one dump.
type DumpStats struct {
	Took      time.Duration
	Truncated int // queries that ended early
}

// NewDumpScheduler returns a scheduler for a table. It calls onDump after each dump, unless onDump is nil.
func NewDumpScheduler(table Table, onDump func(DumpStats)) *DumpScheduler {
	s := &DumpScheduler{Table: table, onDump: onDump, cpuTime: threadCPUTime, token: make(chan struct{}, 1)}
	s.token <- struct{}{}
	return s
}

// waiter is a user that waits for a dump.
type waiter struct {
	ctx     context.Context
	queries func() []Query
	results chan []Result
}

// Dump implements Table. It waits for the cooldown, 2 s at most, and for the dumps of earlier users.
func (s *DumpScheduler) Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error) {
	results, err := s.Query(ctx, func() []Query { return []Query{{filter, each}} })
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

// Query runs several queries in one dump, and returns a result for each. It calls queries once, when that dump
// starts, because queries may depend on what changes during the wait. If ctx ends before that, the error is that of
// ctx, and nothing was queried.
func (s *DumpScheduler) Query(ctx context.Context, queries func() []Query) ([]Result, error) {
	w := &waiter{ctx, queries, make(chan []Result, 1)}
	s.mutex.Lock()
	s.waiting = append(s.waiting, w)
	s.mutex.Unlock()
	select {
	case results := <-w.results:
		return results, nil
	case <-ctx.Done():
	case <-s.token:
		if !s.isStarted(w) {
			s.waitCooldown(ctx)
			if ctx.Err() == nil {
				s.dump(context.WithoutCancel(ctx))
			}
		}
		s.token <- struct{}{}
	}
	if s.cancel(w) {
		return nil, ctx.Err()
	}
	return <-w.results, nil // a dump has started, and may still call Each
}

// waitCooldown waits until the next dump is due. The caller holds the token.
func (s *DumpScheduler) waitCooldown(ctx context.Context) {
	due := time.NewTimer(time.Until(s.nextDump))
	defer due.Stop()
	select {
	case <-due.C:
	case <-ctx.Done():
	}
}

// isStarted reports whether a dump for a user has started.
func (s *DumpScheduler) isStarted(w *waiter) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return !slices.Contains(s.waiting, w)
}

// cancel removes a user from those that wait. It reports false if a dump for it has started.
func (s *DumpScheduler) cancel(w *waiter) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// threadCPUTime returns the CPU time that this thread has used.
func threadCPUTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		panic(fmt.Sprintf("read CPU time of the thread: %v", err)) // every Linux has that clock
	}
	return time.Duration(used.Nano())
}

// dump serves all waiting users, even if the one that dumps has stopped waiting.
func (s *DumpScheduler) dump(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.mutex.Lock()
	waiters := s.waiting
	s.waiting = nil
	s.mutex.Unlock()
	requests := make([][]*request, len(waiters))
	for i, w := range waiters {
		for _, query := range w.queries() {
			requests[i] = append(requests[i], &request{Query: query, ctx: w.ctx})
		}
	}
	began, cpuBefore := time.Now(), s.cpuTime()
	var stats DumpStats
	groups := groupByFilter(slices.Concat(requests...))
	for _, group := range groups {
		took, err := s.Table.Dump(ctx, group.filter, group.dispatch)
		if errors.Is(err, ErrTruncated) {
			err = nil // each request records by itself whether it was truncated
		}
		for _, r := range group.requests {
			if errors.Is(r.stopErr, ErrTruncated) {
				stats.Truncated++
			}
			r.result = Result{took, errors.Join(r.stopErr, err)}
		}
	}
	stats.Took = time.Since(began)
	s.nextDump = time.Now().Add(min(cooldownFactor*(s.cpuTime()-cpuBefore), maxCooldown))
	if s.onDump != nil && len(groups) > 0 {
		s.onDump(stats)
	}
	for i, w := range waiters {
		results := make([]Result, len(requests[i]))
		for k, r := range requests[i] {
			results[k] = r.result
		}
		w.results <- results
	}
}

// request is a query and its result.
type request struct {
	Query
	ctx     context.Context
	stopErr error // why it gets no more entries; nil while it still gets some
	result  Result
}

// group is the requests of a dump that one query to the kernel serves.
type group struct {
	filter   Filter
	requests []*request
}

// groupByFilter returns the requests in groups, each with a filter that covers all others of the group.
func groupByFilter(requests []*request) []group {
	var groups []group
	for _, r := range requests {
		joined := group{r.Filter, []*request{r}}
		var rest []group
		for _, g := range groups {
			switch {
			case g.filter.covers(&joined.filter):
				joined = group{g.filter, append(g.requests, joined.requests...)}
			case joined.filter.covers(&g.filter):
				joined.requests = append(g.requests, joined.requests...)
			default:
				rest = append(rest, g)
			}
		}
		groups = append(rest, joined)
	}
	return groups
}

// dispatch passes an entry to all requests that select it. It reports false once no request needs more entries.
func (g *group) dispatch(e *Entry) bool {
	wantsMore := false
	for _, r := range g.requests {
		if r.stopErr == nil {
			r.deliver(e)
		}
		wantsMore = wantsMore || r.stopErr == nil
	}
	return wantsMore
}

func (r *request) deliver(e *Entry) {
	switch {
	case r.ctx.Err() != nil:
		r.stopErr = r.ctx.Err()
	case r.Filter.Matches(e) && !r.Each(e):
		r.stopErr = ErrTruncated
	}
}
