package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
)

// newDisturbances asks for a complete sync after another process changed our tables. Disturbances reach the proxy as
// repairs, at a measured pace: a second disturbance before the repair is repaired by the same sync.
//
// While another process keeps changing other tables, each complete sync raises the suspicion that something was missed
// while it was sent, which the kernel could not report: so suspicion alone causes only one complete sync in a sync
// period.
func newDisturbances(c *common, reporter eventReporter) (part, <-chan struct{}) {
	disturbed, suspected, repairs := notify.NewSignal(), notify.NewSignal(), make(chan struct{})
	changed := func(change nft.ExternalChange) {
		if change.Overrun {
			c.log.Info("changes of nftables may have been missed; our tables will be rewritten soon")
			suspected.Notify()
			return
		}
		c.log.Warn("another process changed our tables; repairing them",
			"process", change.Process, "pid", change.PID, "families", fmt.Sprint(change.Families))
		for _, family := range change.Families {
			c.recorder.ForeignChange(family.String())
		}
		reporter.report(events.ForeignChange(c.options.Node, change.Process, change.PID))
		disturbed.Notify()
	}
	run := func(ctx context.Context) error {
		return cli.RunAll(ctx,
			func(ctx context.Context) error { return c.conn.Watch(ctx, changed) },
			func(ctx context.Context) error { return limitRate(ctx, repairInterval, disturbed, repairs) },
			func(ctx context.Context) error {
				return limitRate(ctx, c.options.Settings.SyncPeriod, suspected, repairs)
			},
		)
	}
	return part{run: run}, repairs
}

// repairInterval is the least time between two repairs. A process that keeps changing our tables, above all a second
// proxy in the same namespace that "repairs" what we wrote, would otherwise keep both writing without a pause. A repair
// is due within a second.
const repairInterval = 500 * time.Millisecond

// limitRate passes signals on until ctx ends: the first one at once, and those that come within the interval after it as
// one, at its end. The sender must not wait for it, so in holds one signal.
func limitRate(ctx context.Context, interval time.Duration, in <-chan struct{}, out chan<- struct{}) error {
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
