package status

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultPendingTimeout is kube-proxy's: twice the sync period, which is 30 s by default.
const DefaultPendingTimeout = 60 * time.Second

// Status is what the proxy has reported about its work. The zero Status is that of a proxy that has not begun. Its
// methods may be called at the same time from several goroutines; its fields are settings, to be set before.
//
// Times passed to it should carry a monotonic clock reading, as those of time.Now do: then no jump of the machine's
// date changes a verdict.
type Status struct {
	// PendingTimeout is how long a change may wait for a successful sync before the proxy counts as unhealthy; zero for
	// DefaultPendingTimeout.
	PendingTimeout time.Duration
	// Answered is called for each answer of Handler, with the path and the HTTP status. It may be nil.
	Answered func(path string, code int)

	mu     sync.Mutex
	record record
}

// record is what Status holds, without its lock. A zero time means: never, or nothing.
type record struct {
	oldestPending time.Time // when the oldest change without a successful sync after it was queued
	newestPending time.Time // and the newest
	succeeded     time.Time // the newest success
	failed        time.Time // the newest failure, unless a success has followed it
	failure       string
	refused       int
	others        []string
	eligibility   eligibility
	interruptions []Interruption // by resource
}

// eligibility is whether load balancers may use the node. Until the node is known they may not.
type eligibility struct {
	known    bool
	eligible bool
	why      string
}

// SyncQueued says that a change asks for a sync.
func (s *Status) SyncQueued(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.queue(at)
}

// SyncSucceeded says that the kernel holds every change that was queued until then. A change that was queued later,
// while the sync ran, goes on waiting: a sync that begins and hangs must not hide behind the one before it.
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

// SyncFailed says that a sync failed, and why. The kernel's state is then unknown, so another sync is due from then on,
// even if nothing was queued.
func (s *Status) SyncFailed(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.queue(at)
	s.record.failed, s.record.failure = at, err.Error()
}

// Refused says how many objects are left out at present.
func (s *Status) Refused(objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.refused = objects
}

// OtherProxies says which other service proxies are on this node, a sentence each.
func (s *Status) OtherProxies(sentences []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.others = sentences
}

// NodeEligibility says whether load balancers may send new connections through this node, and if not, why. This
// concerns the node, not the proxy's health.
func (s *Status) NodeEligibility(eligible bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.eligibility = eligibility{known: true, eligible: eligible, why: why}
}

// WatchInterrupted says since when the API server has sent nothing about a resource, and why. The rules in the kernel
// still match the last known state, so this is only shown.
func (s *Status) WatchInterrupted(resource string, since time.Time, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.record.otherInterruptions(resource)
	s.record.interruptions = append(others, Interruption{Resource: resource, Since: since, Reason: why})
	slices.SortFunc(s.record.interruptions, func(a, b Interruption) int { return strings.Compare(a.Resource, b.Resource) })
}

// WatchResumed says that the watch of a resource works again.
func (s *Status) WatchResumed(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.interruptions = s.record.otherInterruptions(resource)
}

// Verdict judges what the proxy has reported, at a given moment.
func (s *Status) Verdict(now time.Time) Verdict {
	s.mu.Lock()
	r := s.record // its slices are never changed, only replaced
	s.mu.Unlock()
	return r.verdict(now, cmp.Or(s.PendingTimeout, DefaultPendingTimeout))
}

// otherInterruptions returns a copy of the interruptions without that of a resource.
func (r *record) otherInterruptions(resource string) []Interruption {
	return slices.DeleteFunc(slices.Clone(r.interruptions), func(i Interruption) bool { return i.Resource == resource })
}

func (r *record) queue(at time.Time) {
	if r.oldestPending.IsZero() {
		r.oldestPending = at
	}
	if at.After(r.newestPending) {
		r.newestPending = at
	}
}
