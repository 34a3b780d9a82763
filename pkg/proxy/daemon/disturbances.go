package daemon

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// newDisturbances asks for a complete sync after another process changed our tables. Disturbances reach the proxy as
// repairs, at a measured pace: a second disturbance before the repair is repaired by the same sync.
//
// While another process keeps changing other tables, each complete sync raises the suspicion that something was missed
// while it was sent, which the kernel could not report: so suspicion alone causes only one complete sync in a sync
// period.
func newDisturbances(c *common, reporter eventReporter) (part, <-chan struct{}) {
	disturbed, suspected, repairs := wake.NewSignal(), wake.NewSignal(), make(chan struct{})
	changed := func(change nft.ForeignChange) {
		if change.Lost {
			c.log.Info("changes of nftables may have been missed; our tables will be rewritten soon")
			suspected.Send()
			return
		}
		c.log.Warn("another process changed our tables; repairing them",
			"process", change.Process, "pid", change.PID, "families", fmt.Sprint(change.Families))
		for _, family := range change.Families {
			c.recorder.ForeignChange(family.String())
		}
		reporter.foreignChange(change)
		disturbed.Send()
	}
	run := func(ctx context.Context) error {
		return cli.Together(ctx,
			func(ctx context.Context) error { return c.conn.Watch(ctx, changed) },
			func(ctx context.Context) error { return pace(ctx, repairInterval, disturbed, repairs) },
			func(ctx context.Context) error { return pace(ctx, c.options.Settings.SyncPeriod, suspected, repairs) },
		)
	}
	return part{run: run}, repairs
}
