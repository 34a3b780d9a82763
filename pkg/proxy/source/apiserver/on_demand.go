package apiserver

import (
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// onDemandIdleTimeout is how long a resource that only some Services need is watched after the last of them stops
// needing it. A user who may edit a Service decides when every node lists it, and a list is a large response. So the
// time doubles whenever the resource is needed again, up to maxOnDemandIdleTimeout: a proxy lists it at most twelve
// times on its first day, and twice a day after that. Another topology key needs no new list, because all labels of a
// node are kept.
const (
	onDemandIdleTimeout    = 30 * time.Second
	maxOnDemandIdleTimeout = 12 * time.Hour
)

// onDemandWatch watches a resource while a Service needs it.
type onDemandWatch struct {
	watcher *Watcher
	// choose returns the source to watch, given the current one; nil if that is not known yet. A source without a resource
	// means that there is none to watch now.
	choose func(ctx context.Context, now *source) *source
	// interestOf returns what Services currently need from the resource, and interest is its last result. interestChanged
	// is set when that has changed.
	interestOf      func(*state) interest
	interest        interest
	interestChanged notify.Signal
	// onStart is called when the watch starts, and prepareSource is called with a source before its objects arrive; nil
	// if there is only one source.
	onStart       func(*state)
	prepareSource func(*state, *source)
	// drop removes the delivered state unless it is needed again, and reports whether it did.
	drop func(*state) bool
	// onSourceChange is called with the resource that is now watched, or an empty one.
	onSourceChange func(resource string)
}

// interest describes which part of a resource Services need: whether any needs it, and whether one needs labels other
// than zones.
type interest struct{ isNeeded, needsLabels bool }

// run watches the resource while a Service needs it, until the context ends.
func (d *onDemandWatch) run(ctx context.Context) {
	idleTimeout := onDemandIdleTimeout
	for ctx.Err() == nil {
		if isNeeded, _ := d.reevaluate(nil); isNeeded {
			d.watchUntilIdle(ctx, idleTimeout)
			idleTimeout = min(2*idleTimeout, maxOnDemandIdleTimeout)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.interestChanged:
		}
	}
}

// watchUntilIdle lists and watches until no Service has needed the resource for idleTimeout.
func (d *onDemandWatch) watchUntilIdle(ctx context.Context, idleTimeout time.Duration) {
	var active activeWatch
	defer func() { active.stop() }()
	d.watcher.change(d.onStart)
	idleTimer := time.NewTimer(idleTimeout)
	defer idleTimer.Stop()
	idleTimer.Stop()
	choiceTimer := time.NewTimer(0)
	defer choiceTimer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-choiceTimer.C:
			active = d.switchSource(ctx, active)
			choiceTimer.Reset(untilNextChoice(active.source))
		case <-d.interestChanged:
			idleTimer.Stop()
			switch isNeeded, isInsufficient := d.reevaluate(active.source); {
			case !isNeeded:
				idleTimer.Reset(idleTimeout)
			case isInsufficient:
				choiceTimer.Reset(0)
			}
		case <-idleTimer.C:
			if d.dropIfUnneeded(active.stop) {
				active.endInterruptions(d.watcher)
				d.onSourceChange("")
				return
			}
		}
	}
}

// activeWatch is the current watch. The zero value is none.
type activeWatch struct {
	source *source
	cancel context.CancelFunc
}

func (a activeWatch) stop() {
	if a.cancel != nil {
		a.cancel()
	}
}

// endInterruptions ends the interruptions of a source that is no longer watched.
func (a activeWatch) endInterruptions(w *Watcher) {
	if a.source != nil {
		for _, request := range a.source.requests {
			w.interruptions.forget(request.resource)
		}
	}
}

// switchSource switches to the chosen source. The last known state stays active until that source is completely listed.
func (d *onDemandWatch) switchSource(ctx context.Context, active activeWatch) activeWatch {
	chosen := d.choose(ctx, active.source)
	if chosen == nil || active.source != nil && active.source.resource == chosen.resource {
		return active
	}
	active.stop()
	active.endInterruptions(d.watcher)
	if active.source != nil && active.source.resource != "" {
		d.watcher.options.Log.Info("switched the source of node topology", "before", active.source.resource,
			"now", chosen.resource)
	}
	if d.prepareSource != nil {
		d.watcher.change(func(s *state) { d.prepareSource(s, chosen) })
	}
	ctx, cancel := context.WithCancel(ctx)
	for _, request := range chosen.requests {
		d.watcher.newStream(request).start(ctx)
	}
	d.onSourceChange(chosen.resource)
	return activeWatch{chosen, cancel}
}

// dropIfUnneeded drops the state and stops the watch, unless the resource is needed again. It reports whether it did.
// Objects that the Reflector delivers later are ignored.
func (d *onDemandWatch) dropIfUnneeded(stop context.CancelFunc) (isDropped bool) {
	d.watcher.change(func(s *state) {
		if isDropped = d.drop(s); isDropped {
			stop()
		}
	})
	return isDropped
}

// reevaluate reports whether the resource is needed, and whether Services need more than the source has.
func (d *onDemandWatch) reevaluate(active *source) (isNeeded, isInsufficient bool) {
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	current := d.interestOf(d.watcher.state)
	return current.isNeeded, active != nil && active.hasZonesOnly && current.needsLabels
}
