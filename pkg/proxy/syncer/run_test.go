package syncer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

func TestRunWaitsForTheCompleteState(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		r.driftDetected <- struct{}{}
		r.advance(time.Hour)
		r.expect("before the first change")
		r.changes <- manyServices(3, 2)
		r.expect("the first change", attempt{At: time.Hour, Full: true, Services: 3})
		r.advance(time.Hour)
		r.expect("while nothing happens")
	})
}

func TestRunSyncsTogetherWhatArrivesTogether(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		r.changes <- manyServices(3, 2)
		r.expect("the first change", attempt{Full: true, Services: 3})

		r.advance(syncer.SyncInterval)
		r.kernel.batchDuration = time.Second
		r.changes <- resized(manyEndpoints)
		r.advance(time.Millisecond)
		for _, change := range []model.Change{resized(4), stickyService(1), resized(5), stickyService(1, 2)} {
			r.changes <- change
			r.advance(time.Millisecond)
		}
		r.expect("during a sync")
		r.advance(time.Minute)
		// The first of them needs lb-33, and so a batch for that before the one with its elements.
		r.expect("changes during a sync are synced together",
			attempt{At: syncer.SyncInterval, Services: 1}, attempt{At: syncer.SyncInterval + 2*time.Second, Services: 2})
		checkLikeFreshStart(r.t, &r.kernel.memoryKernel, manyServices(3, 2).Merge(resized(5)).Merge(stickyService(1, 2)))
	})
}

func TestRunRetriesWithBackoff(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		r.reject(rejectAll)
		r.changes <- manyServices(3, 2)
		var at, pause time.Duration
		pause = 100 * time.Millisecond
		for range 12 {
			r.expect("a failed sync", attempt{At: at, Full: true, RetryIn: pause})
			r.advance(pause - time.Nanosecond)
			r.expect("before the pause ends")
			r.advance(time.Nanosecond)
			at, pause = at+pause, min(2*pause, 30*time.Second)
		}
		r.expect("the last of them", attempt{At: at, Full: true, RetryIn: pause})
		r.reject(nil)
		r.advance(30 * time.Second)
		at += 30 * time.Second
		r.expect("the kernel accepts it", attempt{At: at, Full: true, Services: 3})
		r.advance(time.Hour)
		at += time.Hour
		r.expect("after the success")

		r.reject(rejectAll)
		r.changes <- resized(1)
		r.expect("the first retry after a success has the shortest pause", attempt{At: at, RetryIn: 100 * time.Millisecond})
	})
}

func TestChangesDoNotWaitForAFailedCleanup(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		r.changes <- manyServices(3, manyEndpoints+1)
		r.expect("the first change", attempt{Full: true, Services: 3})
		r.advance(time.Second)
		r.reject(rejectCleanups)
		r.changes <- manyServices(3, manyEndpoints)
		r.expect("a change whose cleanup fails", attempt{At: time.Second, Services: 3, CleanupFailed: true})
		r.advance(300 * time.Millisecond)
		r.changes <- stickyService(1)
		r.expect("a change soon after", attempt{At: 1300 * time.Millisecond, Services: 1, CleanupFailed: true})
		r.reject(nil)
		r.advance(time.Second)
		r.expect("a second later", attempt{At: 2300 * time.Millisecond})
		r.advance(time.Hour)
		r.expect("after the cleanup")
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	for name, prepare := range map[string]func(r *run){
		"before the first change": func(*run) {},
		"while nothing happens":   func(r *run) { r.changes <- manyServices(3, 2) },
		"before a sync is retried": func(r *run) {
			r.reject(rejectAll)
			r.changes <- manyServices(3, 2)
		},
		"while a change waits for a failed sync": func(r *run) {
			r.reject(rejectAll)
			r.changes <- manyServices(3, 2)
			synctest.Wait()
			r.changes <- resized(1)
		},
		"while a change waits for others": func(r *run) {
			r.changes <- manyServices(3, 2)
			synctest.Wait()
			r.changes <- resized(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withRunningProxy(t, func(t *testing.T, r *run) {
				prepare(r)
				synctest.Wait()
				r.take()
				r.end()
				r.expect("after the context has ended")
				if !r.ended {
					t.Error("the proxy still runs")
				}
			})
		})
	}
}

func TestChangesWaitForAFailedSync(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		r.reject(rejectAll)
		r.changes <- manyServices(3, 2)
		r.expect("a failed sync", attempt{Full: true, RetryIn: 100 * time.Millisecond})
		r.changes <- resized(1)
		r.changes <- stickyService(1)
		r.advance(99 * time.Millisecond)
		r.expect("changes before the pause ends")
		r.reject(nil)
		r.advance(time.Millisecond)
		r.expect("everything together", attempt{At: 100 * time.Millisecond, Full: true, Services: 4})
		checkLikeFreshStart(r.t, &r.kernel.memoryKernel, manyServices(3, 2).Merge(resized(1)).Merge(stickyService(1)))
	})
}
