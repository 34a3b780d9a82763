package status

import (
	"testing"
	"time"
	"unsafe"
)

// adjustedClock is a clock that NTP or an administrator sets while time passes: the date jumps, the monotonic reading does
// not.
type adjustedClock struct {
	began time.Time
	set   time.Duration // total change of the date since the start
}

// timeAfter returns the clock's reading some time after the start.
func (m *adjustedClock) timeAfter(t *testing.T, d time.Duration) time.Time {
	t.Helper()
	correct := m.began.Add(d)
	// Package time cannot make a time whose two readings disagree; only the kernel can. The date's seconds are the 33 bits
	// above the 30 of its nanoseconds (time.Time, field wall, with a monotonic reading).
	shifted := correct
	wall := (*uint64)(unsafe.Pointer(&shifted))
	*wall += uint64(int64(m.set/time.Second)) << 30 // a negative number wraps around, and so subtracts
	if date := shifted.Round(0).Sub(correct.Round(0)); date != m.set || shifted.Sub(correct) != 0 {
		t.Fatalf("the date differs by %s and the monotonic reading by %s, want %s and 0: package time has changed", date,
			shifted.Sub(correct), m.set)
	}
	return shifted
}

// TestClockJumpsDoNotChangeHealth is one scenario with jumps of the date. Without the monotonic reading, the first
// jump would make the change look new for an hour, and the second one would make it look old at once.
func TestClockJumpsDoNotChangeHealth(t *testing.T) {
	for name, jumps := range map[string][]time.Duration{
		"none":                  {0, 0},
		"an hour back":          {-time.Hour, -time.Hour},
		"a day ahead":           {24 * time.Hour, 24 * time.Hour},
		"a day ahead and back":  {24 * time.Hour, 0},
		"an hour back and more": {-time.Hour, -25 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &adjustedClock{began: time.Now()}
			var status Status
			expect := func(after time.Duration, want bool) {
				t.Helper()
				if got := status.Health(clock.timeAfter(t, after)).Healthy; got != want {
					t.Errorf("after %s healthy is %v, want %v", after, got, want)
				}
			}
			status.SyncQueued(clock.timeAfter(t, 0))
			clock.set = jumps[0]
			expect(time.Second, true)
			expect(59*time.Second, true)
			expect(61*time.Second, false)
			status.SyncFailed(clock.timeAfter(t, 62*time.Second), errBusy)

			status.SyncQueued(clock.timeAfter(t, 70*time.Second))
			clock.set = jumps[1]
			status.SyncSucceeded(clock.timeAfter(t, 71*time.Second))
			expect(72*time.Second, true)
			expect(100*time.Hour, true)
			if pending := status.Health(clock.timeAfter(t, 72*time.Second)).PendingSince; !pending.IsZero() {
				t.Errorf("a change is pending since %s although a later sync succeeded", pending)
			}
		})
	}
}
