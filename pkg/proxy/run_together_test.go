package proxy_test

import (
	"testing"
	"time"
)

// TestAChangeAndADisturbanceThatArriveTogetherAreOneCompleteSync, whichever of the two is looked at first. Chance decides that,
// so there are many rounds.
func TestAChangeAndADisturbanceThatArriveTogetherAreOneCompleteSync(t *testing.T) {
	running(t, func(t *testing.T, r *run) {
		r.kernel.slow = time.Second
		r.changes <- manyServices(3, 2)
		r.later(time.Minute)
		r.take()
		for round := range 16 {
			r.changes <- resized(3 + round%2)
			r.later(time.Millisecond)
			r.changes <- stickyService(1)
			r.disturbed <- struct{}{}
			r.later(time.Minute)
			syncs := r.take()
			if len(syncs) != 2 || syncs[0].Complete || !syncs[1].Complete {
				t.Fatalf("round %d: got %+v, want a sync of the first change and then one complete sync", round, syncs)
			}
		}
	})
}
