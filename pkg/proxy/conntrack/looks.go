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
	next time.Time // when to look again; the holder of turn's

	mutex   sync.Mutex
	waiting []*user
}

// Look is what one look did.
type Look struct {
	Took   time.Duration
	CutOff int // users who did not want all
}

// NewLooks returns looks at a table. It calls looked after each, unless that is nil.
func NewLooks(table Table, looked func(Look)) *Looks {
	l := &Looks{Table: table, looked: looked, spent: processorTime, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// user waits for a look.
type user struct {
	ctx       context.Context
	questions func() []Question
	answers   chan []Answer
}

// Dump is that of Table. It waits for its turn: 2 s at most, and the looks of those who came before.
func (l *Looks) Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error) {
	answers, err := l.Ask(ctx, func() []Question { return []Question{{filter, each}} })
	if err != nil {
		return 0, err
	}
	return answers[0].Took, answers[0].Err
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

// Ask asks several questions in one look, and returns an answer to each. It calls questions once, when that look begins:
// they may depend on what changes while it waits. The error is that of ctx if it ends before, and nothing was asked then.
func (l *Looks) Ask(ctx context.Context, questions func() []Question) ([]Answer, error) {
	u := &user{ctx, questions, make(chan []Answer, 1)}
	l.mutex.Lock()
	l.waiting = append(l.waiting, u)
	l.mutex.Unlock()
	select {
	case answers := <-u.answers:
		return answers, nil
	case <-ctx.Done():
	case <-l.turn:
		if !l.isServed(u) {
			l.rest(ctx)
			if ctx.Err() == nil {
				l.look(context.WithoutCancel(ctx))
			}
		}
		l.turn <- struct{}{}
	}
	if l.withdraw(u) {
		return nil, ctx.Err()
	}
	return <-u.answers, nil // a look has begun, and uses each
}

// rest waits until the next look is due. The turn is held.
func (l *Looks) rest(ctx context.Context) {
	due := time.NewTimer(time.Until(l.next))
	defer due.Stop()
	select {
	case <-due.C:
	case <-ctx.Done():
	}
}

// isServed reports whether a look has begun to serve a user.
func (l *Looks) isServed(u *user) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return !slices.Contains(l.waiting, u)
}

// withdraw takes a user out of those who wait. It reports false if a look has begun to serve it.
func (l *Looks) withdraw(u *user) bool {
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

// look serves all who wait, even if the one who looks has stopped waiting.
func (l *Looks) look(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.mutex.Lock()
	users := l.waiting
	l.waiting = nil
	l.mutex.Unlock()
	asked := make([][]*request, len(users))
	for i, u := range users {
		for _, question := range u.questions() {
			asked[i] = append(asked[i], &request{Question: question, ctx: u.ctx})
		}
	}
	began, spent := time.Now(), l.spent()
	var look Look
	groups := together(slices.Concat(asked...))
	for _, of := range groups {
		took, err := l.Table.Dump(ctx, of.filter, of.give)
		if errors.Is(err, ErrCutOff) {
			err = nil // each request notes by itself whether it was cut off
		}
		for _, r := range of.requests {
			if errors.Is(r.over, ErrCutOff) {
				look.CutOff++
			}
			r.answer = Answer{took, errors.Join(r.over, err)}
		}
	}
	look.Took = time.Since(began)
	l.next = time.Now().Add(min(restFor*(l.spent()-spent), restAtMost))
	if l.looked != nil && len(groups) > 0 {
		l.looked(look)
	}
	for i, u := range users {
		answers := make([]Answer, len(asked[i]))
		for k, r := range asked[i] {
			answers[k] = r.answer
		}
		u.answers <- answers
	}
}

// request is a question and its answer.
type request struct {
	Question
	ctx    context.Context
	over   error // why it wants no more entries
	answer Answer
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
