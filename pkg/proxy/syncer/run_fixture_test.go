package syncer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// attempt is one sync of Run. Times are relative to the start of the test.
type attempt struct {
	At            time.Duration
	Full          bool
	Services      int           // decided, if it succeeded
	RetryIn       time.Duration // if it failed
	CleanupFailed bool
}

// recorder is an Observer that records its calls. It has a mutex because timers do not synchronize
// goroutines.
type recorder struct {
	t     *testing.T
	start time.Time
	// extraNanos is the duration of each sync in nanoseconds, in addition to that of its batches.
	extraNanos atomic.Int64

	mutex         sync.Mutex
	queued        time.Time
	changesQueued []syncer.Changes // of each sync
	attempts      []attempt
}

func (r *recorder) Queued(changes syncer.Changes, at time.Time) {
	time.Sleep(time.Duration(r.extraNanos.Load()))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.queued = at
	r.changesQueued = append(r.changesQueued, changes)
}

func (r *recorder) Synced(report syncer.Report, started, ended time.Time) {
	r.record(started, ended, attempt{Full: report.Full, Services: report.Decided, CleanupFailed: report.CleanupErr != nil})
}

func (r *recorder) Failed(err error, report syncer.Report, started, ended time.Time, retryIn time.Duration) {
	if err == nil || retryIn <= 0 {
		r.t.Errorf("notified of a failure with error %v, to be retried in %s", err, retryIn)
	}
	r.record(started, ended, attempt{Full: report.Full, RetryIn: retryIn})
}

func (r *recorder) record(started, ended time.Time, entry attempt) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.queued.IsZero() || r.queued.After(started) || started.After(ended) {
		r.t.Errorf("queued at %s, started at %s, ended at %s: not in this order", r.queued, started, ended)
	}
	r.queued = time.Time{}
	entry.At = started.Sub(r.start)
	r.attempts = append(r.attempts, entry)
}

// take returns the syncs since the last call.
func (r *recorder) take() []attempt {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	attempts := r.attempts
	r.attempts = nil
	return attempts
}

// run is a running proxy, in a bubble whose clock only moves while all goroutines wait.
type run struct {
	*recorder
	kernel        *scriptedKernel
	changes       chan model.Change
	driftDetected chan struct{}
	end           context.CancelFunc
	ended         bool
	rejection     atomic.Pointer[func(ruleset.Batch) error]
}

// reject sets the function that decides which batches the kernel rejects; nil rejects none.
func (r *run) reject(hook func(ruleset.Batch) error) { r.rejection.Store(&hook) }

func (r *run) applyHook(batch ruleset.Batch) error {
	if reject := r.rejection.Load(); reject != nil && *reject != nil {
		return (*reject)(batch)
	}
	return nil
}

// withRunningProxy calls test with a running proxy, and stops the proxy afterwards.
func withRunningProxy(t *testing.T, test func(t *testing.T, r *run)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &run{
			recorder:      &recorder{t: t, start: time.Now()},
			kernel:        &scriptedKernel{},
			changes:       make(chan model.Change, 16),
			driftDetected: make(chan struct{}, 1),
			end:           cancel,
		}
		r.kernel.reject = r.applyHook
		p := syncer.New(self, bothFamilies, r.kernel)
		go func() {
			p.Run(ctx, r.changes, r.driftDetected, r.recorder)
			r.ended = true
		}()
		synctest.Wait()
		test(t, r)
		cancel()
		synctest.Wait()
		if !r.ended {
			t.Error("the proxy still runs after its context ended")
		}
	})
}

// expect waits until all goroutines are blocked, and checks the syncs since the last call.
func (r *run) expect(title string, want ...attempt) {
	r.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, r.take()); diff != "" {
		r.t.Errorf("%s: syncs (-want +got):\n%s", title, diff)
	}
}

// advance advances the time.
func (r *run) advance(duration time.Duration) {
	time.Sleep(duration)
	synctest.Wait()
}
