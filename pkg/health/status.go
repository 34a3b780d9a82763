package health

import (
	"slices"
	"sync"
	"time"
)

// PendingTimeout is how long a change may wait for a successful sync before the proxy counts as unhealthy. It is
// kube-proxy's: twice the sync period, which is 30 s by default.
const PendingTimeout = 60 * time.Second

// Status is what the proxy has told about its work. The zero Status is that of a proxy that has not begun. Its methods may be
// called at the same time from several goroutines.
type Status struct {
	mu     sync.Mutex
	record record
}

// record is what Status holds, without its lock. A zero time means: never, or nothing.
type record struct {
	oldestPending time.Time // when the oldest change that no successful sync has followed was queued
	newestPending time.Time // and the newest
	succeeded     time.Time // the newest success
	failed        time.Time // the newest failure, unless a success has followed it
	failure       string
	refused       []string
}

// SyncQueued says that a change asked for a sync.
func (s *Status) SyncQueued(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.queue(at)
}

// SyncSucceeded says that the kernel holds every change that was queued until then. A change that was queued later, while the
// sync ran, goes on waiting: a sync that begins and hangs must not hide behind the one before it.
func (s *Status) SyncSucceeded(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.record
	r.succeeded = until
	r.failed, r.failure = time.Time{}, ""
	switch {
	case !r.newestPending.After(until):
		r.oldestPending, r.newestPending = time.Time{}, time.Time{}
	case r.oldestPending.Before(until):
		r.oldestPending = until // at the earliest
	}
}

// SyncFailed says that a sync failed, and why. The kernel's state is then unknown, so another sync is due from that moment
// on even if nothing had been queued.
func (s *Status) SyncFailed(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.queue(at)
	s.record.failed, s.record.failure = at, err.Error()
}

// Problems says which objects are refused at present, a sentence each, in the order in which they are to be shown.
func (s *Status) Problems(problems []string) {
	problems = slices.Clone(problems)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.refused = problems
}

// Verdict judges what the proxy has told, at a given moment.
func (s *Status) Verdict(now time.Time) Verdict {
	s.mu.Lock()
	r := s.record // its slice is never changed, only replaced
	s.mu.Unlock()
	return r.verdict(now)
}

func (r *record) queue(at time.Time) {
	if r.oldestPending.IsZero() {
		r.oldestPending = at
	}
	if at.After(r.newestPending) {
		r.newestPending = at
	}
}
