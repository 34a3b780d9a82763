package status

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// second returns the time n seconds after the start.
func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

var errBusy = errors.New("committing 3 changes: device or resource busy")

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		report func(*Status)
		now    time.Time
		want   Health
	}{
		"a proxy that has not started is healthy and not ready": {
			func(*Status) {}, second(1000),
			Health{At: second(1000), Healthy: true},
		},
		"a change pending for less than a minute leaves the proxy healthy": {
			func(s *Status) { s.SyncQueued(second(0)) }, second(59),
			Health{At: second(59), Healthy: true, PendingSince: second(0)},
		},
		"a change pending for a minute makes the proxy unhealthy": {
			func(s *Status) { s.SyncQueued(second(0)) }, second(60),
			Health{At: second(60), PendingSince: second(0)},
		},
		"the oldest pending change counts, not the newest": {
			func(s *Status) { s.SyncQueued(second(0)); s.SyncQueued(second(59)) }, second(60),
			Health{At: second(60), PendingSince: second(0)},
		},
		"a success makes it healthy and ready, even if nothing changes for long": {
			func(s *Status) { s.SyncQueued(second(0)); s.SyncSucceeded(second(70)) }, second(100000),
			Health{At: second(100000), Healthy: true, Ready: true, LastSuccess: second(70)},
		},
		"a change queued at the time of a sync is included": {
			func(s *Status) { s.SyncQueued(second(0)); s.SyncQueued(second(7)); s.SyncSucceeded(second(7)) }, second(100),
			Health{At: second(100), Healthy: true, Ready: true, LastSuccess: second(7)},
		},
		"a change queued during a sync stays pending": {
			func(s *Status) { s.SyncQueued(second(0)); s.SyncQueued(second(9)); s.SyncSucceeded(second(8)) }, second(68),
			Health{At: second(68), Ready: true, LastSuccess: second(8), PendingSince: second(8)},
		},
		"a change that is reported late does not hide a newer one": {
			func(s *Status) { s.SyncQueued(second(9)); s.SyncQueued(second(5)); s.SyncSucceeded(second(7)) }, second(10),
			Health{At: second(10), Healthy: true, Ready: true, LastSuccess: second(7), PendingSince: second(9)},
		},
		"a failure is shown at once and does not make the proxy unhealthy for a minute": {
			func(s *Status) { s.SyncQueued(second(0)); s.SyncFailed(second(1), errBusy) }, second(2),
			Health{At: second(2), Healthy: true, PendingSince: second(0), LastFailure: second(1), LastError: errBusy.Error()},
		},
		"a failure counts as a pending change even if nothing was queued": {
			func(s *Status) { s.SyncSucceeded(second(0)); s.SyncFailed(second(10), errBusy) }, second(70),
			Health{
				At: second(70), Ready: true, LastSuccess: second(0), PendingSince: second(10),
				LastFailure: second(10), LastError: errBusy.Error(),
			},
		},
		"failures do not reset the age of a pending change": {
			func(s *Status) {
				s.SyncQueued(second(0))
				s.SyncFailed(second(30), errBusy)
				s.SyncFailed(second(59), errBusy)
			}, second(60),
			Health{At: second(60), PendingSince: second(0), LastFailure: second(59), LastError: errBusy.Error()},
		},
		"a success clears the failure": {
			func(s *Status) { s.SyncFailed(second(0), errBusy); s.SyncSucceeded(second(90)) }, second(91),
			Health{At: second(91), Healthy: true, Ready: true, LastSuccess: second(90)},
		},
		"invalid objects are shown and leave the proxy healthy": {
			func(s *Status) { s.SyncSucceeded(second(0)); s.SetInvalidObjects(1) }, second(1000),
			Health{At: second(1000), Healthy: true, Ready: true, LastSuccess: second(0), InvalidObjects: 1},
		},
		"interrupted watches are shown and leave the proxy healthy": {
			func(s *Status) {
				s.SyncSucceeded(second(0))
				s.WatchInterrupted("services", second(1), "connection refused")
				s.WatchInterrupted("endpointslices", second(2), "too old")
				s.WatchInterrupted("services", second(1), "no route to host")
			}, second(100000),
			Health{
				At: second(100000), Healthy: true, Ready: true, LastSuccess: second(0), Interruptions: []Interruption{
					{"endpointslices", second(2), "too old"}, {"services", second(1), "no route to host"},
				},
			},
		},
		"a resumed watch is no longer shown": {
			func(s *Status) {
				s.WatchInterrupted("services", second(1), "connection refused")
				s.WatchInterrupted("nodes", second(1), "connection refused")
				s.WatchResumed("services")
				s.WatchResumed("servicecidrs") // never interrupted
			}, second(2),
			Health{At: second(2), Healthy: true, Interruptions: []Interruption{{"nodes", second(1), "connection refused"}}},
		},
		"objects that are valid again are no longer shown": {
			func(s *Status) { s.SetInvalidObjects(1); s.SetInvalidObjects(0) }, second(1),
			Health{At: second(1), Healthy: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var status Status
			status.SetNodeEligibility(true, "")
			c.want.NodeEligible = true
			c.report(&status)
			if diff := cmp.Diff(c.want, status.Health(c.now)); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPendingTimeout(t *testing.T) {
	status := Status{PendingTimeout: 10 * time.Second}
	status.SyncQueued(second(0))
	for now, want := range map[int]bool{9: true, 10: false} {
		if got := status.Health(second(now)).Healthy; got != want {
			t.Errorf("after %d seconds healthy is %v, want %v", now, got, want)
		}
	}
}

func TestNodeEligibility(t *testing.T) {
	var status Status
	for _, step := range []struct {
		report   func()
		eligible bool
		reason   string
	}{
		{func() {}, false, nodeUnknown},
		{func() { status.SetNodeEligibility(true, "") }, true, ""},
		{func() { status.SetNodeEligibility(false, "the Node is being deleted") }, false, "the Node is being deleted"},
		{func() { status.SetNodeEligibility(true, "") }, true, ""},
	} {
		step.report()
		health := status.Health(start)
		if health.NodeEligible != step.eligible || health.IneligibleReason != step.reason || !health.Healthy {
			t.Errorf("got %+v, want a healthy proxy, eligible %v, reason %q", health, step.eligible, step.reason)
		}
	}
}

func TestReadySentence(t *testing.T) {
	for name, c := range map[string]struct {
		verdict Health
		want    string
	}{
		"before the first sync": {Health{}, "The first sync has not reached the kernel yet; waiting for the complete state of the cluster."},
		"before the first sync, while watches are interrupted": {
			Health{Interruptions: []Interruption{{Resource: "services", Reason: "refused"}, {Resource: "nodes", Reason: "too"}}},
			"The first sync has not reached the kernel yet; the watch of services is interrupted: refused",
		},
		"after the first sync":        {Health{Ready: true}, "The first sync is in the kernel."},
		"ready stays ready on errors": {Health{Ready: true, LastError: "busy"}, "The first sync is in the kernel."},
		"after a failed first sync": {
			Health{LastError: "busy"}, "The first sync has not reached the kernel yet; the last attempt failed: busy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.verdict.ReadySentence()); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusIsSafeForConcurrentUse(t *testing.T) {
	var status Status
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			status.SyncQueued(second(n))
			status.SyncFailed(second(n), errBusy)
			status.SetInvalidObjects(1)
			status.SetNodeEligibility(true, "")
			status.WatchInterrupted("services", start, "refused")
			status.Health(second(n))
		})
	}
	group.Wait()
	status.SyncSucceeded(second(8))
	want := Health{
		At: second(9), Healthy: true, Ready: true, LastSuccess: second(8), NodeEligible: true, InvalidObjects: 1,
		Interruptions: []Interruption{{"services", start, "refused"}},
	}
	if diff := cmp.Diff(want, status.Health(second(9))); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}
