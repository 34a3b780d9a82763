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
	// OnResponse is called for each answer of Handler, with the path and the HTTP status. It may be nil.
	OnResponse func(path string, code int)

	mu sync.Mutex
	// health is what was reported, without what follows from it at a moment. PendingSince is when the oldest change without
	// a successful sync after it was queued, and newestPending when the newest was.
	health        Health
	newestPending time.Time

	newest      *Sync
	numbers     Numbers
	agreesSince time.Time // zero while the kernel does not agree
	nodesFrom   string    // the resource from which we learn where nodes are
}

// SyncQueued says that a change asks for a sync.
func (s *Status) SyncQueued(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue(at)
}

// SyncSucceeded says that the kernel holds every change that was queued until then. A change that was queued later,
// while the sync ran, goes on waiting: a sync that begins and hangs must not hide behind the one before it.
func (s *Status) SyncSucceeded(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.health
	v.LastSuccess = until
	v.LastFailure, v.LastError = time.Time{}, ""
	switch {
	case !s.newestPending.After(until):
		v.PendingSince, s.newestPending = time.Time{}, time.Time{}
	case v.PendingSince.Before(until):
		v.PendingSince = until // at the earliest
	}
}

// SyncFailed says that a sync failed, and why. The kernel's state is then unknown, so another sync is due from then on,
// even if nothing was queued.
func (s *Status) SyncFailed(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue(at)
	s.health.LastFailure, s.health.LastError = at, err.Error()
	s.agreesSince = time.Time{}
}

// SetRejected says how many objects are left out at present.
func (s *Status) SetRejected(objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.InvalidObjects = objects
}

// OtherProxies says which other service proxies are on this node, a sentence each.
func (s *Status) OtherProxies(sentences []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.OtherProxies = sentences
}

// NodeEligibility says whether load balancers may send new connections through this node, and if not, why. This
// concerns the node, not the proxy's health. Until it is called they may not.
func (s *Status) NodeEligibility(eligible bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.NodeEligible, s.health.NotEligible = eligible, why
}

// WatchInterrupted says since when the API server has sent nothing about a resource, and why. The rules in the kernel
// still match the last known state, so this is only shown.
func (s *Status) WatchInterrupted(resource string, since time.Time, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.otherInterruptions(resource)
	s.health.Interruptions = append(others, Interruption{Resource: resource, Since: since, Reason: why})
	slices.SortFunc(s.health.Interruptions, func(a, b Interruption) int { return strings.Compare(a.Resource, b.Resource) })
}

// WatchResumed says that the watch of a resource works again.
func (s *Status) WatchResumed(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.Interruptions = s.otherInterruptions(resource)
}

// The reason until it is known whether the node is eligible.
const nodeUnknown = "the Node object is not known yet"

// Health judges what the proxy has reported, at a given moment. The rule is kube-proxy's: unhealthy when a change has
// been waiting for too long. One transaction changes both families, so one verdict holds for both. Neither the passing of
// time alone nor a recent failure alone makes the proxy unhealthy.
func (s *Status) Health(now time.Time) Health {
	s.mu.Lock()
	v := s.health // its slices are never changed, only replaced
	s.mu.Unlock()
	v.At = now
	v.Healthy = v.PendingSince.IsZero() || now.Sub(v.PendingSince) < cmp.Or(s.PendingTimeout, DefaultPendingTimeout)
	v.Ready = !v.LastSuccess.IsZero()
	if !v.NodeEligible && v.NotEligible == "" {
		v.NotEligible = nodeUnknown
	}
	return v
}

// otherInterruptions returns a copy of the interruptions without that of a resource.
func (s *Status) otherInterruptions(resource string) []Interruption {
	return slices.DeleteFunc(slices.Clone(s.health.Interruptions), func(i Interruption) bool { return i.Resource == resource })
}

func (s *Status) queue(at time.Time) {
	if s.health.PendingSince.IsZero() {
		s.health.PendingSince = at
	}
	if at.After(s.newestPending) {
		s.newestPending = at
	}
}
