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

// newDriftDetector returns the component that triggers a full sync after another process modified our tables, and the
// channel of these repairs. Repairs are rate-limited: the next one covers all modifications before it.
//
// While another process keeps changing other tables, the kernel may be unable to report every change during a full
// sync. It then reports an overrun: changes may have been missed. So overruns alone cause only one full sync per sync
// period.
func newDriftDetector(c *common, reporter eventReporter) (component, <-chan struct{}) {
	modified, overrun, repairs := notify.NewSignal(), notify.NewSignal(), make(chan struct{})
	onChange := func(change nft.ExternalChange) {
		if change.Overrun {
			c.log.Info("changes of nftables may have been missed; our tables will be rewritten soon")
			overrun.Notify()
			return
		}
		c.log.Warn("another process changed our tables; repairing them",
			"process", change.Process, "pid", change.PID, "families", fmt.Sprint(change.Families))
		for _, family := range change.Families {
			c.recorder.ExternalChange(family.String())
		}
		reporter.report(events.ExternalChange(c.options.Node, change.Process, change.PID))
		modified.Notify()
	}
	run := func(ctx context.Context) error {
		return cli.RunAll(ctx,
			func(ctx context.Context) error { return c.conn.Watch(ctx, onChange) },
			func(ctx context.Context) error { return limitRate(ctx, repairInterval, modified, repairs) },
			func(ctx context.Context) error {
				return limitRate(ctx, c.options.Settings.SyncPeriod, overrun, repairs)
			},
		)
	}
	return component{run: run}, repairs
}

// repairInterval is the minimum time between two repairs. Otherwise a process that keeps modifying our tables, above
// all a second proxy in the same namespace that "repairs" our changes, would keep both writing without a pause. A
// repair is due within a second.
const repairInterval = 500 * time.Millisecond

// limitRate forwards signals until ctx ends: the first one at once, and those that arrive within the interval after it
// as one signal, at its end. The sender must not block, so in has a buffer of one signal.
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
