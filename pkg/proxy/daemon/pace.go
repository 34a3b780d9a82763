package daemon

import (
	"context"
	"time"
)

// repairInterval is the least time between two repairs. A process that keeps changing our tables, above all a second
// proxy in the same namespace that "repairs" what we wrote, would otherwise keep both writing without a pause. A repair
// is due within a second.
const repairInterval = 500 * time.Millisecond

// pace passes signals on until ctx ends: the first one at once, and those that come within the interval after it as
// one, at its end. The sender must not wait for it, so in holds one signal.
func pace(ctx context.Context, interval time.Duration, in <-chan struct{}, out chan<- struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-in:
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- struct{}{}:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}
