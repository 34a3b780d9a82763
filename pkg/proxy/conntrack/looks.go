//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How long to rest after a look: 49 times the processor time that it took, so that all looks together take no more than a
// fiftieth of a processor. Time that a look spent waiting for a busy processor does not count, or a busy node would
// find out later that another node is dead. A short look is followed soon by the next: a UDP flow whose endpoint left
// waits for it. And nobody waits longer than restAtMost, so where a look takes more than 41 ms, looks take more than a
// fiftieth.
const (
	restFor    = 49
	restAtMost = 2 * time.Second
)

// Looks is a table for several users. Those who ask for a dump at the same time share one look, and after a look the next
// ones wait until it has rested. Without a user it does nothing.
//
// A look asks the kernel once for each filter that no other one of the look covers: two short lists take less time than
// one of everything.
type Looks struct {
	Table // deletes

	looked func(Look)
	spent  func() time.Duration // the processor time of this thread
	// turn is held by the user who looks, or rests before looking, on behalf of all who wait.
	turn chan struct{}
	next atomic.Int64 // when to look again, in nanoseconds since 1970; set by the holder of turn

	mutex   sync.Mutex
	waiting []*request
}

// Look is what one look did.
type Look struct {
	Took    time.Duration
	Entries int // that were handed over
	CutOff  int // users who did not want all
}

// NewLooks returns looks at a table. It calls looked after each, unless that is nil.
func NewLooks(table Table, looked func(Look)) *Looks {
	l := &Looks{Table: table, looked: looked, spent: processorTime, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// request is a question that waits for its answer.
type request struct {
	Question
	ctx  context.Context
	over error // why it wants no more entries
	done chan Answer
}

// Dump is that of Table. It waits for its turn: 2 s at most, and the looks of those who came before.
func (l *Looks) Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error) {
	answer := l.Ask(ctx, Question{filter, each})[0]
	return answer.Took, answer.Err
}

// Question is what a user asks the table for; see Table.Dump.
type Question struct {
	Filter Filter
	Each   func(*Entry) bool
}

// Answer is how a question ended; see Table.Dump.
type Answer struct {
	Took time.Duration
	Err  error
}

// Ask asks several questions in one look.
func (l *Looks) Ask(ctx context.Context, questions ...Question) []Answer {
	requests := make([]*request, len(questions))
	for i, q := range questions {
		requests[i] = &request{Question: q, ctx: ctx, done: make(chan Answer, 1)}
	}
	l.mutex.Lock()
	l.waiting = append(l.waiting, requests...)
	l.mutex.Unlock()
	answers := make([]Answer, len(requests))
	for i, r := range requests {
		answers[i] = l.serve(r)
	}
	return answers
}

// serve waits until a request is served, and does it if nobody else does.
func (l *Looks) serve(r *request) Answer {
	select {
	case answer := <-r.done:
		return answer
	case <-r.ctx.Done():
	case <-l.turn:
		if !l.isServed(r) {
			l.Await(r.ctx)
			if r.ctx.Err() == nil {
				l.look(context.WithoutCancel(r.ctx))
			}
		}
		l.turn <- struct{}{}
	}
	if l.withdraw(r) {
		return Answer{Err: r.ctx.Err()}
	}
	return <-r.done // it is being served, and uses each
}

// Await waits until the next look is due. A user whose question keeps changing calls it before it asks, so that the
// question is not outdated by then.
func (l *Looks) Await(ctx context.Context) {
	due := time.NewTimer(time.Until(time.Unix(0, l.next.Load())))
	defer due.Stop()
	select {
	case <-due.C:
	case <-ctx.Done():
	}
}

// isServed reports whether a look has begun to serve a request.
func (l *Looks) isServed(r *request) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return !slices.Contains(l.waiting, r)
}

// withdraw takes a request back. It reports false if a look has begun to serve it.
func (l *Looks) withdraw(r *request) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	i := slices.Index(l.waiting, r)
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

// look serves all who wait, even if the one who looks has stopped waiting.
func (l *Looks) look(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := l.spent()
	l.mutex.Lock()
	requests := l.waiting
	l.waiting = nil
	l.mutex.Unlock()
	began := time.Now()
	var look Look
	for _, of := range together(requests) {
		took, err := l.Table.Dump(ctx, of.filter, func(e *Entry) bool {
			look.Entries++
			return of.give(e)
		})
		if errors.Is(err, ErrCutOff) {
			err = nil // each request notes by itself whether it was cut off
		}
		for _, r := range of.requests {
			if errors.Is(r.over, ErrCutOff) {
				look.CutOff++
			}
			r.done <- Answer{took, errors.Join(r.over, err)}
		}
	}
	look.Took = time.Since(began)
	l.next.Store(time.Now().Add(min(restFor*(l.spent()-spent), restAtMost)).UnixNano())
	if l.looked != nil {
		l.looked(look)
	}
}

// group are requests that one dump serves.
type group struct {
	filter   Filter
	requests []*request
}

// together returns the requests in groups, each with a filter that covers all others of the group.
func together(requests []*request) []group {
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

// give passes an entry to all who want it. It reports false once nobody wants any more entries.
func (g *group) give(e *Entry) bool {
	isWanted := false
	for _, r := range g.requests {
		if r.over == nil {
			r.give(e)
		}
		isWanted = isWanted || r.over == nil
	}
	return isWanted
}

func (r *request) give(e *Entry) {
	switch {
	case r.ctx.Err() != nil:
		r.over = r.ctx.Err()
	case r.Filter.Matches(e) && !r.Each(e):
		r.over = ErrCutOff
	}
}
