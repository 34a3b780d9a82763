package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepairsAreRateLimited(t *testing.T) {
	for name, test := range map[string]struct {
		signals int
		every   time.Duration
		want    int
	}{
		"a single one is repaired":                              {1, 0, 1},
		"rare ones are repaired one by one":                     {4, time.Minute, 4},
		"a burst is repaired twice a second, and once after it": {200, 10 * time.Millisecond, 5},
		"two in quick succession cause two repairs":             {2, time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := countForwarded(t, test.signals, test.every); got != test.want {
					t.Errorf("%d modifications led to %d repairs, want %d", test.signals, got, test.want)
				}
			})
		})
	}
}

// countForwarded sends signals as the daemon does, and returns how many were forwarded.
func countForwarded(t *testing.T, signals int, interval time.Duration) int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	in, out := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(out)
		_ = limitRate(ctx, repairInterval, in, out)
	}()
	got := make(chan int)
	go func() {
		count := 0
		for range out {
			count++
		}
		got <- count
	}()
	for range signals {
		select {
		case in <- struct{}{}:
		default:
		}
		time.Sleep(interval)
	}
	time.Sleep(2 * repairInterval)
	stop()
	return <-got
}
