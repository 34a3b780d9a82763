package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newConntrackCleanup returns the handler that knows the Service of each connection, and the component that deletes
// stale conntrack entries after changes.
func newConntrackCleanup(c *common, dumps *conntrack.DumpScheduler, isLocal selection.IsLocal) (*serviceindex.Index, component) {
	index := serviceindex.New(conntrackgc.StaleEntryWindow)
	reconciler := conntrackgc.NewReconciler(dumps, index, isLocal)
	return index, component{
		handler: index,
		run:     unfailing(func(ctx context.Context) { reconciler.Run(ctx, c.onConntrackCleanup) }),
	}
}

// onConntrackDump is called after each dump of conntrack.
func (c *common) onConntrackDump(stats conntrack.DumpStats) {
	result := metrics.DumpComplete
	if stats.Truncated > 0 {
		result = metrics.DumpTruncated
	}
	c.recorder.Observe(metrics.ConntrackDumps, stats.Took, result)
}

// onConntrackCleanup is called after each conntrack cleanup; err is set if stale entries may remain.
func (c *common) onConntrackCleanup(result conntrackgc.CleanupResult, err error) {
	for family, pass := range result.Flows {
		c.recorder.Add(metrics.UDPEntriesDeleted, pass.Deleted, family.String())
		if pass.Duration > 0 { // the dump succeeded
			c.recorder.Observe(metrics.UDPReconcileDuration, pass.Duration, family.String())
		}
	}
	for protocol, n := range result.Unreplied {
		c.recorder.Add(metrics.StaleEntriesDeleted, n, protocol.String(), metrics.FlowUnreplied)
	}
	for protocol, n := range result.Closed {
		c.recorder.Add(metrics.StaleEntriesDeleted, n, protocol.String(), metrics.FlowClosed)
	}
	if len(result.Unreplied) > 0 {
		c.log.Info("deleted stale conntrack entries of unreplied connections",
			"tcp", result.Unreplied[model.TCP], "sctp", result.Unreplied[model.SCTP])
	}
	if len(result.Closed) > 0 {
		c.log.Debug("deleted stale conntrack entries of closed connections", "tcp", result.Closed[model.TCP], "sctp", result.Closed[model.SCTP])
	}
	if err != nil {
		c.log.Warn("failed to delete stale conntrack entries; retrying", "error", err)
	}
}
