//go:build linux

package interfaces

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The clock of these tests advances only while all goroutines wait, so the measured times are exact.
func TestABurstEnds(t *testing.T) {
	for name, test := range map[string]struct {
		interval time.Duration // between two notifications
		count    int
		want     time.Duration
	}{
		"no further change":               {count: 0, want: quietTime},
		"quietTime after the last change": {interval: 4 * time.Millisecond, count: 10, want: 40*time.Millisecond + quietTime},
		"endless changes":                 {interval: time.Millisecond, count: 1000, want: burstTime},
		"the next change is late":         {interval: quietTime + time.Millisecond, count: 10, want: quietTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, changed := time.Now(), make(chan struct{}, 1)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for range test.count {
						time.Sleep(test.interval)
						select {
						case changed <- struct{}{}:
						default:
						}
					}
				}()
				debounce(t.Context(), changed)
				if got := time.Since(began); got != test.want {
					t.Errorf("debounce returned after %v, want %v", got, test.want)
				}
				<-sent // a bubble ends with its goroutines
			})
		})
	}
}

func TestABurstEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		debounce(ctx, make(chan struct{}))
		if got := time.Since(began); got != 0 {
			t.Errorf("debounce returned after %v, want at once", got)
		}
	})
}
