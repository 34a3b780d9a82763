package syncer_test

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// TestASteadyStreamOfChangesTakesATenthOfTheTime: the pause after a sync depends on the duration of the sync, up to a
// maximum; and changes that arrive while others wait do not delay these.
func TestASteadyStreamOfChangesTakesATenthOfTheTime(t *testing.T) {
	for _, test := range []struct{ took, pause time.Duration }{
		{time.Millisecond, 10 * time.Millisecond},
		{3 * time.Millisecond, 30 * time.Millisecond},
		{8 * time.Millisecond, syncer.SyncInterval},
	} {
		t.Run(test.took.String(), func(t *testing.T) {
			withRunningProxy(t, func(_ *testing.T, r *run) {
				everything := manyServices(3, 2)
				r.changes <- everything
				r.expect("the first change", attempt{Full: true, Services: 3})
				r.extraNanos.Store(int64(test.took))
				r.changes <- resized(2)
				r.advance(test.pause / 4)
				r.expect("the first of the stream", attempt{Services: 1})
				var want []attempt
				for interval := range 4 {
					for round := range 10 {
						change := resized(2 + round%3)
						if round == 5 {
							change = stickyService(1 + interval)
						}
						everything = everything.Merge(change)
						r.changes <- change
						r.advance(test.pause / 10)
					}
					want = append(want, attempt{At: time.Duration(interval+1) * test.pause, Services: 2})
				}
				r.advance(test.pause)
				want = append(want, attempt{At: 5 * test.pause, Services: 1}) // those since the last sync started
				r.expect("continuous changes", want...)
				checkLikeFreshStart(r.t, &r.kernel.memoryKernel, everything)
				r.advance(time.Hour)
				r.expect("after the stream")
			})
		})
	}
}

func TestAnExternalModificationIsRepairedAtOnceTogetherWithChanges(t *testing.T) {
	withRunningProxy(t, func(_ *testing.T, r *run) {
		const took = syncer.SyncInterval / 4
		r.extraNanos.Store(int64(took))
		r.changes <- manyServices(3, 2)
		r.advance(took)
		r.expect("the first change", attempt{Full: true, Services: 3})
		r.changes <- stickyService(1)
		r.expect("a change soon after")
		r.driftDetected <- struct{}{}
		r.advance(took)
		r.expect("an external modification before the change is synced", attempt{At: took, Full: true, Services: 4})
		checkLikeFreshStart(r.t, &r.kernel.memoryKernel, manyServices(3, 2).Merge(stickyService(1)))
		r.changes <- resized(1)
		r.advance(syncer.SyncInterval - took - 1)
		r.expect("a change soon after that")
		r.advance(1 + took)
		r.expect("an interval after that sync began", attempt{At: took + syncer.SyncInterval, Services: 1})
	})
}

// TestAChangeAndAnExternalModificationTogetherAreOneFullSync, whichever of the two is received first. That is
// random, so there are many rounds.
func TestAChangeAndAnExternalModificationTogetherAreOneFullSync(t *testing.T) {
	withRunningProxy(t, func(t *testing.T, r *run) {
		r.kernel.batchDuration = time.Second
		r.changes <- manyServices(3, 2)
		r.advance(time.Minute)
		r.take()
		for round := range 16 {
			r.changes <- resized(3 + round%2)
			r.advance(time.Millisecond)
			r.changes <- stickyService(1)
			r.driftDetected <- struct{}{}
			r.advance(time.Minute)
			syncs := r.take()
			if len(syncs) != 2 || syncs[0].Full || !syncs[1].Full {
				t.Fatalf("round %d: got %+v, want a partial sync and then a full one", round, syncs)
			}
		}
	})
}
