//go:build linux

package conntrackgc

import (
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Intervals of further scans. A packet that was evaluated by the old rules creates its entry a moment after they
// changed. A connection to a removed endpoint may close at any time.
const (
	shortRescan = time.Second
	longRescan  = 5 * time.Second
	// finalScanTimeout limits the scan at shutdown.
	finalScanTimeout = 5 * time.Second
)

// Reconciler deletes the entries of connections to endpoints that may no longer serve them. It runs in parallel with
// rule changes, because reading a large table takes longer than many changes. The shared dumps throttle it, so that
// frequent changes of a Service do not keep a CPU busy.
//
// A UDP flow is deleted at the first scan after its frontend changed. The entry of a TCP or SCTP connection is deleted
// only if two scans, some time apart, found it unreplied, and if it is still unreplied when it is deleted. Where the
// kernel can, it checks that itself (conntrack.Table.DeleteUnreplied). Otherwise the entry is read again, on its own,
// right before it is deleted. TCP and SCTP are scanned for two minutes after an endpoint was removed.
//
// While nothing changes it waits, at no cost.
type Reconciler struct {
	dumps   *conntrack.DumpScheduler
	index   *serviceindex.Index
	isLocal selection.IsLocal
	now     func() time.Time
	// lastScanned is the number of the last sync after which UDP flows were scanned. Only one goroutine scans.
	lastScanned uint64
	// scansConnections reports whether the last scan included TCP and SCTP connections.
	scansConnections bool
	// closedDue is when to read all replied connections.
	closedDue time.Time
	// firstUnreplied are the unreplied connections that the last scan found, and when a scan first found them.
	firstUnreplied map[identity]time.Time
}

// identity distinguishes an entry from all others.
type identity struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
	id              uint32
}

// NewReconciler returns a Reconciler for the connections to the frontends of an index.
func NewReconciler(dumps *conntrack.DumpScheduler, index *serviceindex.Index, isLocal selection.IsLocal) *Reconciler {
	return &Reconciler{dumps: dumps, index: index, isLocal: isLocal, now: time.Now}
}

// Run scans whenever something changed, until ctx ends, and then once more if UDP flows remain to be scanned. It
// reports the result of each scan, and the error because of which stale connections may remain; a scan a second later
// retries those. Changes during a scan share the next one.
func (r *Reconciler) Run(ctx context.Context, report func(CleanupResult, error)) {
	var changed time.Time
	rescan := time.NewTimer(0)
	defer rescan.Stop()
	rescan.Stop()
	for {
		select {
		case <-ctx.Done():
			r.finalScan(ctx, report)
			return
		case <-r.index.Changed():
			changed = time.Now()
		case <-rescan.C:
		}
		cleanup, err := r.CleanOnce(ctx)
		if ctx.Err() != nil {
			err = nil // the final scan finds the rest
		}
		report(cleanup, err)
		if err != nil || r.scansConnections {
			rescan.Reset(cleanup.nextScan(time.Since(changed), err))
		}
	}
}

// finalScan scans UDP flows for the last changes before shutdown.
func (r *Reconciler) finalScan(ctx context.Context, report func(CleanupResult, error)) {
	snapshot := r.index.Snapshot()
	if snapshot == nil || len(snapshot.ChangedAfter(r.lastScanned)) == 0 {
		return
	}
	finalCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalScanTimeout)
	defer cancel()
	report(r.CleanOnce(finalCtx))
}

// nextScan returns the delay until the next scan, given the time since the last change.
func (r *CleanupResult) nextScan(sinceChange time.Duration, err error) time.Duration {
	switch {
	case r.Pending > 0 || r.Truncated:
		return confirmInterval
	case err != nil || sinceChange < shortRescan:
		return shortRescan
	}
	return longRescan
}
