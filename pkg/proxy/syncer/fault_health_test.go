package syncer_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// healthModel reports to health as the daemon does, and records the expected state independently.
type healthModel struct {
	t      *testing.T
	status *status.Status

	mutex sync.Mutex
	// pending is since when a change waits for a successful sync, lastError is the error of the last sync; both are zero
	// after a success.
	pending   time.Time
	lastError string
	synced    bool
	failures  int
	// complete is set if the last successful sync cleaned up everything.
	complete bool
}

func (w *healthModel) Queued(_ syncer.Changes, at time.Time) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.pending.IsZero() {
		w.pending = at
	}
	w.status.SyncQueued(at)
}

func (w *healthModel) Synced(report syncer.Report, started, _ time.Time) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.pending, w.lastError, w.synced, w.complete = time.Time{}, "", true, report.CleanupErr == nil
	w.status.SyncSucceeded(started)
}

func (w *healthModel) Failed(err error, _ syncer.Report, _, ended time.Time, _ time.Duration) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.lastError = err.Error()
	w.failures++
	w.status.SyncFailed(ended, err)
}

// check compares health with the expected state.
func (w *healthModel) check(now time.Time) (healthy bool) {
	w.t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	got := w.status.Health(now)
	healthy = w.pending.IsZero() || now.Sub(w.pending) < status.DefaultPendingTimeout
	if got.Healthy != healthy || got.Ready != w.synced || got.LastError != w.lastError || !got.PendingSince.Equal(w.pending) {
		w.t.Errorf("health is %+v, but changes have waited since %s, the last error is %q, and any sync succeeded: %v",
			got, w.pending, w.lastError, w.synced)
	}
	return healthy
}

// TestHealthIsRightWhileNetlinkFails simulates hours with netlink faults of short and long periods.
func TestHealthIsRightWhileNetlinkFails(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			random, kernel := rand.New(rand.NewPCG(seed, 2)), &memoryKernel{}
			faults := &faultInjector{Kernel: kernel, random: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}}
			seen := &healthModel{t: t, status: &status.Status{}}
			changes, disturbed := make(chan model.Change, 16), make(chan struct{}, 1)
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { starting(faults).Run(ctx, changes, disturbed, seen) })

			everything, verdicts := manyServices(3, 2), map[bool]int{}
			changes <- everything
			for range 60 {
				faults.percent.Store(50 * random.Int32N(3)) // none, half or all of the calls fail
				change := resized(random.IntN(5))
				everything = everything.Merge(change)
				changes <- change
				for range 1 + random.IntN(40) {
					time.Sleep(time.Duration(random.Int64N(int64(8 * time.Second))))
					synctest.Wait()
					verdicts[seen.check(time.Now())]++
				}
				faults.percent.Store(0)
				select { // a repair is immediate, a retry is due within half a minute
				case disturbed <- struct{}{}:
				default:
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !seen.check(time.Now()) || seen.lastError != "" || !seen.complete {
					t.Errorf("a minute after the faults ended the last error is %q", seen.lastError)
				}
				likeFreshStart(t, kernel, everything)
			}
			if verdicts[false] == 0 || verdicts[true] == 0 || seen.failures == 0 {
				t.Errorf("seed %d: health was %v after %d failures, so little was tested", seed, verdicts, seen.failures)
			}
			end()
			running.Wait()
		})
	}
}
