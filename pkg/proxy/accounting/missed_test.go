//go:build linux

package accounting

import (
	"testing"
	"time"
)

// TestWhatIsMissedIsLoggedOnceItIsKnown, and again after an hour.
func TestWhatIsMissedIsLoggedOnceItIsKnown(t *testing.T) {
	var last report
	now := start
	for i, step := range []struct {
		after    time.Duration
		number   uint64
		isLogged bool
	}{
		{0, 0, false},
		{missedEvery, 26_000, false}, // more may be on its way
		{missedEvery, 33_791, true},
		{missedEvery, 33_791, false},
		{missedEvery, 40_000, false}, // within the hour
		{missedAgain, 50_000, false},
		{missedEvery, 50_000, true},
		{24 * time.Hour, 50_000, false},
	} {
		now = now.Add(step.after)
		if got := last.isToBeLogged(step.number, now); got != step.isLogged {
			t.Errorf("step %d: logged %v, want %v", i+1, got, step.isLogged)
		} else if got {
			last = report{number: step.number, at: now}
		}
	}
}
