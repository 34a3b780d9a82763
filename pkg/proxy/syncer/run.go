package syncer

import (
	"cmp"
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Observer is notified of syncs.
type Observer interface {
	// Queued is called before each sync, with the changes that were received since the last call.
	Queued(changes Changes, at time.Time)
	// Synced is called after each sync that the kernel accepted. All queued changes are then applied, except those of
	// Services that wait for a later batch.
	Synced(report Report, started, ended time.Time)
	// Failed is called after each sync that failed, with the time until the next attempt. Of its report only Full is set.
	Failed(err error, report Report, started, ended time.Time, retryIn time.Duration)
}

// retryMin is the pause before the first retry. Each further pause is twice as long, up to Proxy.RetryMax.
const retryMin = 100 * time.Millisecond

// DefaultRetryMax is kube-proxy's sync period.
const DefaultRetryMax = 30 * time.Second

// Consecutive syncs for changes start at least intervalFactor times the duration of the earlier one apart, but at most
// syncInterval. So the syncs of a steady stream take a tenth of one core: most of the cost of a sync does not depend on
// how much it changes. A single change never waits. At 100 changes a second, each of which arrives after the pause, a
// change reaches the kernel 4 to 7 ms (p50) after it was written. With all pauses at 40 ms that would be 28 ms; the
// shorter pauses cost a sixth more CPU time. Constant pauses of 10 ms would cost 40 % more, because each change then
// waits for a timer.
const (
	intervalFactor = 10
	syncInterval   = 40 * time.Millisecond
)

// Run syncs whenever the cluster changes or the tables were modified externally (driftDetected), until ctx ends.
// Changes that arrive together, during a sync, or in the pause after it are synced together. The first sync waits for
// the first change, which must be the complete state.
//
// A failed sync is retried after growing pauses, or when drift is detected; changes that arrive before the retry
// wait for it. A Service that the kernel rejects is retried in the same way, but nothing waits for it. Neither channel
// may be closed.
func (p *Proxy) Run(ctx context.Context, changes <-chan model.Change, driftDetected <-chan struct{}, observer Observer) {
	select {
	case <-ctx.Done():
		return
	case change := <-changes:
		p.Apply(change)
	}
	for next := (nextSync{}); ; {
		p.drain(changes, driftDetected)
		next = p.syncOnce(ctx, next, observer)
		if !p.wait(ctx, changes, driftDetected, next) {
			return
		}
	}
}

// nextSync is when to sync next.
type nextSync struct {
	// delay is the time until a sync that needs no change; zero means that none is scheduled.
	delay time.Duration
	// earliest is the earliest time of a sync for changes.
	earliest time.Time
	// failed is set if the last sync failed: changes then wait until delay has passed or drift is detected.
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
		return nextSync{} // shutdown, not a failure
	case err != nil:
		next := nextSync{delay: retryMin, failed: true}
		if last.failed {
			next.delay = min(2*last.delay, p.retryMax())
		}
		observer.Failed(err, report, started, time.Now(), next.delay)
		return next
	}
	ended := time.Now()
	observer.Synced(report, started, ended)
	next := nextSync{earliest: started.Add(min(intervalFactor*ended.Sub(started), syncInterval)), delay: p.untilNextRetry(time.Now())}
	if until, waits := p.untilNextBatch(time.Now()); waits && report.CleanupErr == nil && (next.delay == 0 || until < next.delay) {
		next.delay = max(until, 1)
	}
	if report.CleanupErr != nil && (next.delay == 0 || next.delay > time.Second) {
		next.delay = time.Second
	}
	return next
}

func (p *Proxy) retryMax() time.Duration { return cmp.Or(p.RetryMax, DefaultRetryMax) }

// wait returns true when the next sync is due, and false when ctx has ended. An external modification does not wait:
// it may have removed the cause of the last failure.
func (p *Proxy) wait(ctx context.Context, changes <-chan model.Change, driftDetected <-chan struct{}, next nextSync) bool {
	var timer <-chan time.Time
	var deadline time.Time
	if next.delay > 0 {
		timer, deadline = time.After(next.delay), time.Now().Add(next.delay)
	}
	if next.failed {
		changes = nil
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer:
			return true
		case change := <-changes:
			if p.Apply(change) && (timer == nil || next.earliest.Before(deadline)) {
				deadline = next.earliest
				timer = time.After(time.Until(deadline))
			}
		case <-driftDetected:
			p.ForceFullSync()
			return true
		}
	}
}

// drain receives everything that has already arrived.
func (p *Proxy) drain(changes <-chan model.Change, driftDetected <-chan struct{}) {
	for {
		select {
		case change := <-changes:
			p.Apply(change)
		case <-driftDetected:
			p.ForceFullSync()
		default:
			return
		}
	}
}
