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

// healthModel reports to status as the daemon does, and records the expected state independently.
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
	// cleanedUp is set if the last successful sync cleaned up everything.
	cleanedUp bool
}

func (m *healthModel) Queued(_ syncer.Changes, at time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.pending.IsZero() {
		m.pending = at
	}
	m.status.SyncQueued(at)
}

func (m *healthModel) Synced(report syncer.Report, started, _ time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.pending, m.lastError, m.synced, m.cleanedUp = time.Time{}, "", true, report.CleanupErr == nil
	m.status.SyncSucceeded(started)
}

func (m *healthModel) Failed(err error, _ syncer.Report, _, ended time.Time, _ time.Duration) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.lastError = err.Error()
	m.failures++
	m.status.SyncFailed(ended, err)
}

// check compares health with the expected state.
func (m *healthModel) check(now time.Time) (healthy bool) {
	m.t.Helper()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	got := m.status.Health(now)
	healthy = m.pending.IsZero() || now.Sub(m.pending) < status.DefaultPendingTimeout
	if got.Healthy != healthy || got.Ready != m.synced || got.LastError != m.lastError || !got.PendingSince.Equal(m.pending) {
		m.t.Errorf("health is %+v, but changes have waited since %s, the last error is %q, and any sync succeeded: %v",
			got, m.pending, m.lastError, m.synced)
	}
	return healthy
}

// TestHealthIsRightWhileNetlinkFails simulates hours with netlink faults of short and long periods.
func TestHealthIsRightWhileNetlinkFails(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			random, kernel := rand.New(rand.NewPCG(seed, 2)), &memoryKernel{}
			faults := &faultInjector{Kernel: kernel, random: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}}
			observer := &healthModel{t: t, status: &status.Status{}}
			changes, driftDetected := make(chan model.Change, 16), make(chan struct{}, 1)
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { newProxy(faults).Run(ctx, changes, driftDetected, observer) })

			everything, health := manyServices(3, 2), map[bool]int{}
			changes <- everything
			for range 60 {
				faults.percent.Store(50 * random.Int32N(3)) // none, half or all of the calls fail
				change := resized(random.IntN(5))
				everything = everything.Merge(change)
				changes <- change
				for range 1 + random.IntN(40) {
					time.Sleep(time.Duration(random.Int64N(int64(8 * time.Second))))
					synctest.Wait()
					health[observer.check(time.Now())]++
				}
				faults.percent.Store(0)
				select { // a repair is immediate, a retry is due within half a minute
				case driftDetected <- struct{}{}:
				default:
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !observer.check(time.Now()) || observer.lastError != "" || !observer.cleanedUp {
					t.Errorf("a minute after the faults ended the last error is %q", observer.lastError)
				}
				checkLikeFreshStart(t, kernel, everything)
			}
			if health[false] == 0 || health[true] == 0 || observer.failures == 0 {
				t.Errorf("seed %d: health was %v after %d failures, so little was tested", seed, health, observer.failures)
			}
			end()
			running.Wait()
		})
	}
}
