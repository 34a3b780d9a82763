package syncer

import (
	"cmp"
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Observer is notified of what happens.
type Observer interface {
	// Queued is called when something has to be synced, before the sync, with what was taken up since it was last called.
	Queued(changes Changes, at time.Time)
	// Synced is called after each sync that the kernel accepted. Everything that was queued is then in force, except for
	// Services that wait for their turn.
	Synced(report Report, started, ended time.Time)
	// Failed is called after each sync that failed, with its report, which says only whether it would have been complete,
	// and with the time until the next try.
	Failed(err error, report Report, started, ended time.Time, retryIn time.Duration)
}

// retryMin is the pause before the first retry. Each further one waits twice as long, up to Proxy.RetryMax.
const retryMin = 100 * time.Millisecond

// DefaultRetryMax is kube-proxy's sync period.
const DefaultRetryMax = 30 * time.Second

// Syncs for the sake of changes keep a distance, from beginning to beginning: syncShare times the duration of the
// earlier one, but at most syncInterval. So the syncs of a steady stream take a tenth of one core: much of what each
// costs is the same however little it changes. A lone change never waits. At 100 changes a second, each of which finds
// the pause over, a change is in the kernel 4 to 7 ms after it was written, p50, and 28 ms if all pauses are 40 ms;
// that takes a sixth more processor time (pauses of 10 ms take 40 % more: each change then waits for a timer).
const (
	syncShare    = 10
	syncInterval = 40 * time.Millisecond
)

// Run syncs whenever the cluster changes or the tables were disturbed, until ctx ends. What arrives together, while a
// sync is under way, or in the pause after it, is synced together. The first sync waits for the first
// change, which must be the complete state.
//
// A failed sync is tried again, later each time, or when the tables are disturbed; changes that arrive meanwhile wait
// for it. A Service that the kernel refuses is tried again in the same way, and nothing waits for it. Neither channel
// may be closed.
func (p *Proxy) Run(ctx context.Context, changes <-chan model.Change, disturbed <-chan struct{}, observer Observer) {
	select {
	case <-ctx.Done():
		return
	case change := <-changes:
		p.Apply(change)
	}
	for next := (nextSync{}); ; {
		p.drain(changes, disturbed)
		next = p.syncOnce(ctx, next, observer)
		if !p.wait(ctx, changes, disturbed, next) {
			return
		}
	}
}

// nextSync is what lies before the next sync.
type nextSync struct {
	// after is when to sync even if nothing changes; zero for never.
	after time.Duration
	// earliest is when to sync at the earliest for the sake of changes.
	earliest time.Time
	// failed: changes wait, until after has passed or the tables are disturbed.
	failed bool
}

// syncOnce syncs and returns what to wait for.
func (p *Proxy) syncOnce(ctx context.Context, last nextSync, observer Observer) nextSync {
	started := time.Now()
	observer.Queued(p.ingested, started)
	p.ingested = Changes{}
	report, err := p.Sync(ctx)
	switch {
	case ctx.Err() != nil:
		return nextSync{} // the end, not a failure
	case err != nil:
		next := nextSync{after: retryMin, failed: true}
		if last.failed {
			next.after = min(2*last.after, p.retryMax())
		}
		observer.Failed(err, report, started, time.Now(), next.after)
		return next
	}
	ended := time.Now()
	observer.Synced(report, started, ended)
	next := nextSync{earliest: started.Add(min(syncShare*ended.Sub(started), syncInterval)), after: p.untilNextTry(time.Now())}
	if until, waits := p.untilNextBatch(time.Now()); waits && report.CleanupErr == nil && (next.after == 0 || until < next.after) {
		next.after = max(until, 1)
	}
	if report.CleanupErr != nil && (next.after == 0 || next.after > time.Second) {
		next.after = time.Second
	}
	return next
}

func (p *Proxy) retryMax() time.Duration { return cmp.Or(p.RetryMax, DefaultRetryMax) }

// wait returns when it is time to sync again, or false when ctx has ended. A disturbance does not wait: after a
// failure, what stood in the way may be gone with it.
func (p *Proxy) wait(ctx context.Context, changes <-chan model.Change, disturbed <-chan struct{}, next nextSync) bool {
	var again <-chan time.Time
	var at time.Time
	if next.after > 0 {
		again, at = time.After(next.after), time.Now().Add(next.after)
	}
	if next.failed {
		changes = nil
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case change := <-changes:
			if p.Apply(change) && (again == nil || next.earliest.Before(at)) {
				at = next.earliest
				again = time.After(time.Until(at))
			}
		case <-disturbed:
			p.ForceFullSync()
			return true
		}
	}
}

// drain takes in whatever has arrived already.
func (p *Proxy) drain(changes <-chan model.Change, disturbed <-chan struct{}) {
	for {
		select {
		case change := <-changes:
			p.Apply(change)
		case <-disturbed:
			p.ForceFullSync()
		default:
			return
		}
	}
}
