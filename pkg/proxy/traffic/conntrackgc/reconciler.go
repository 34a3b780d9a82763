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

// When to look again. A packet that met the old rules makes its entry a moment after they changed. A connection to an
// endpoint that left may close at any time.
const (
	shortRescan = time.Second
	longRescan  = 5 * time.Second
	// finalScanTimeout bounds the look that follows the end of the program.
	finalScanTimeout = 5 * time.Second
)

// Reconciler ends connections that lead to an endpoint which may no longer answer them, in parallel with changes of the
// rules: reading a large table takes longer than many changes. The looks that it shares make it wait, so changing a
// Service over and over keeps no processor busy.
//
// A flow of UDP ends at the first look after something changed about its frontend. A dial of TCP or SCTP ends only if two
// looks, some time apart, found it unanswered, and if it is still unanswered when it is deleted. Where the kernel can, the
// kernel itself tests that (conntrack.Table.DeleteUnanswered). Elsewhere the entry is read again, by itself, right before
// it is deleted. Dials are looked at as soon as an endpoint left, and for two minutes after.
//
// If nothing changed it waits, and costs nothing.
type Reconciler struct {
	dumps   *conntrack.DumpScheduler
	owners  *serviceindex.Index
	isLocal selection.IsLocal
	now     func() time.Time
	// lastScanned is the number of the last sync after which flows of UDP were looked at. Only one goroutine looks.
	lastScanned uint64
	// isWatching: the last look was for dials, too.
	isWatching bool
	// closedDue is when to read all answered connections.
	closedDue time.Time
	// firstUnreplied are the dials that the last look found, and when a look first found them.
	firstUnreplied map[identity]time.Time
}

// identity tells an entry from all others.
type identity struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
	id              uint32
}

// NewReconciler returns a reconciler of the connections to the frontends of some owners.
func NewReconciler(dumps *conntrack.DumpScheduler, of *serviceindex.Index, isLocal selection.IsLocal) *Reconciler {
	return &Reconciler{dumps: dumps, owners: of, isLocal: isLocal, now: time.Now}
}

// Run looks whenever something changed, until ctx ends, and then once more if flows of UDP are left to look at. It reports
// what each look did, and why some connections may be left: those are looked at again a second later. What changes during
// a look shares the next one.
func (r *Reconciler) Run(ctx context.Context, report func(CleanupResult, error)) {
	var changed time.Time
	next := time.NewTimer(0)
	defer next.Stop()
	next.Stop()
	for {
		select {
		case <-ctx.Done():
			r.finalScan(ctx, report)
			return
		case <-r.owners.Changed():
			changed = time.Now()
		case <-next.C:
		}
		done, err := r.CleanOnce(ctx)
		if ctx.Err() != nil {
			err = nil // the last look finds what is left
		}
		report(done, err)
		if err != nil || r.isWatching {
			next.Reset(done.nextScan(time.Since(changed), err))
		}
	}
}

// finalScan looks at what changed at the very end: this program hears of no further packet.
func (r *Reconciler) finalScan(ctx context.Context, report func(CleanupResult, error)) {
	snapshot := r.owners.Snapshot()
	if snapshot == nil || len(snapshot.ChangedAfter(r.lastScanned)) == 0 {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalScanTimeout)
	defer cancel()
	report(r.CleanOnce(last))
}

// nextScan returns when to look again after a look, by the time since something changed.
func (d *CleanupResult) nextScan(sinceChange time.Duration, err error) time.Duration {
	switch {
	case d.Pending > 0 || d.Truncated:
		return confirmInterval
	case err != nil || sinceChange < shortRescan:
		return shortRescan
	}
	return longRescan
}
