package status

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultPendingTimeout is the same as kube-proxy's: twice the sync period, which is 30 s by default.
const DefaultPendingTimeout = 60 * time.Second

// Status records what the proxy has reported about its work. The zero Status is that of a proxy that has not started.
// Its methods are safe for concurrent use; its exported fields are settings that must be set before use.
//
// Times passed to it should carry a monotonic clock reading, like those of time.Now. Then a change of the machine's
// date does not change the health.
type Status struct {
	// PendingTimeout is how long a change may be pending before the proxy counts as unhealthy; zero means
	// DefaultPendingTimeout.
	PendingTimeout time.Duration
	// OnResponse is called for each response of Handler, with the path and the HTTP status. It may be nil.
	OnResponse func(path string, code int)

	mu sync.Mutex
	// health holds the reported state, without the fields that depend on the current time. PendingSince is when the oldest
	// change without a successful sync after it was queued, and newestPending when the newest was.
	health        Health
	newestPending time.Time

	newestSync     *Sync
	newestNumbers  Numbers
	inSyncSince    time.Time // zero while the kernel is not in sync
	topologySource string    // the resource that provides the topology of nodes
}

// SyncQueued records that a change was queued for a sync.
func (s *Status) SyncQueued(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue(at)
}

// SyncSucceeded records that the kernel has every change that was queued before until. A change that was queued later,
// while the sync ran, stays pending: a sync that hangs must not hide behind the one before it.
func (s *Status) SyncSucceeded(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.health
	h.LastSuccess = until
	h.LastFailure, h.LastError = time.Time{}, ""
	switch {
	case !s.newestPending.After(until):
		h.PendingSince, s.newestPending = time.Time{}, time.Time{}
	case h.PendingSince.Before(until):
		h.PendingSince = until // the earliest possible time
	}
}

// SyncFailed records that a sync failed, and why. The kernel's state is then unknown, so another sync is pending from
// then on, even if no change was queued.
func (s *Status) SyncFailed(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue(at)
	s.health.LastFailure, s.health.LastError = at, err.Error()
	s.inSyncSince = time.Time{}
}

// SetInvalidObjects sets the current number of invalid objects.
func (s *Status) SetInvalidObjects(objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.InvalidObjects = objects
}

// SetOtherProxies sets the other service proxies on this node, one sentence each.
func (s *Status) SetOtherProxies(sentences []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.OtherProxies = sentences
}

// SetNodeEligibility sets whether load balancers may send new connections through this node, and if not, why. This
// concerns the node, not the proxy's health. Until the first call the node is not eligible.
func (s *Status) SetNodeEligibility(eligible bool, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.NodeEligible, s.health.IneligibleReason = eligible, reason
}

// WatchInterrupted records since when the watch of a resource is interrupted, and why. The kernel's rules still match
// the last known state, so this is only shown.
func (s *Status) WatchInterrupted(resource string, since time.Time, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.otherInterruptions(resource)
	s.health.Interruptions = append(others, Interruption{Resource: resource, Since: since, Reason: reason})
	slices.SortFunc(s.health.Interruptions, func(a, b Interruption) int { return strings.Compare(a.Resource, b.Resource) })
}

// WatchResumed records that the watch of a resource works again.
func (s *Status) WatchResumed(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.Interruptions = s.otherInterruptions(resource)
}

// nodeUnknown is the reason before the first call of SetNodeEligibility.
const nodeUnknown = "the Node object is not known yet"

// Health returns the health at a given time. The rule is kube-proxy's: unhealthy if a change has been pending for too
// long. One transaction changes both families, so the result is for both. Neither the passage of time alone nor a
// recent failure alone makes the proxy unhealthy.
func (s *Status) Health(now time.Time) Health {
	s.mu.Lock()
	h := s.health // its slices are never changed, only replaced
	s.mu.Unlock()
	h.At = now
	h.Healthy = h.PendingSince.IsZero() || now.Sub(h.PendingSince) < cmp.Or(s.PendingTimeout, DefaultPendingTimeout)
	h.Ready = !h.LastSuccess.IsZero()
	if !h.NodeEligible && h.IneligibleReason == "" {
		h.IneligibleReason = nodeUnknown
	}
	return h
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
