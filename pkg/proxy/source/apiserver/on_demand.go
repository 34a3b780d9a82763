package apiserver

import (
	"context"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// demandLinger is how long a resource that only some Services need is watched after the last of them stops
// needing it. A user who may edit a Service decides when every node lists it, and a list is a large response. So the
// time doubles whenever the resource is needed again, up to maxOnDemandIdleTimeout: a proxy lists it at most twelve
// times on its first day, and twice a day after that. Another topology key needs no new list, because all labels of a
// node are kept.
const (
	demandLinger    = 30 * time.Second
	demandLingerMax = 12 * time.Hour
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
	// onStart is called when the watch starts, and onSource is called with a source before its objects arrive; nil
	// if there is only one source.
	onStart  func(*state)
	onSource func(*state, *source)
	// drop removes the delivered state unless it is needed again, and reports whether it did.
	drop func(*state) bool
	// onSourceChange is called with the resource that is now watched, or an empty one.
	onSourceChange func(resource string)
}

// interest describes which part of a resource Services need: whether any needs it, and whether one needs labels other
// than zones.
type interest struct{ isNeeded, labels bool }

// watch watches the resource while a Service needs it, until the context ends.
func (d *onDemandWatch) watch(ctx context.Context) {
	lingers := demandLinger
	for ctx.Err() == nil {
		if isNeeded, _ := d.reevaluate(nil); isNeeded {
			d.follow(ctx, lingers)
			lingers = min(2*lingers, demandLingerMax)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.interestChanged:
		}
	}
}

// follow lists and watches until no Service has needed the resource for idleTimeout.
func (d *onDemandWatch) follow(ctx context.Context, lingers time.Duration) {
	var now activeWatch
	defer func() { now.stop() }()
	d.watcher.change(d.onStart)
	linger := time.NewTimer(lingers)
	defer linger.Stop()
	linger.Stop()
	choice := time.NewTimer(0)
	defer choice.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-choice.C:
			now = d.followFrom(ctx, now)
			choice.Reset(untilNextChoice(now.source))
		case <-d.interestChanged:
			linger.Stop()
			switch isNeeded, isOutgrown := d.reevaluate(now.source); {
			case !isNeeded:
				linger.Reset(lingers)
			case isOutgrown:
				choice.Reset(0)
			}
		case <-linger.C:
			if d.dropNow(now.stop) {
				now.forget(d.watcher)
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

func (f activeWatch) stop() {
	if f.cancel != nil {
		f.cancel()
	}
}

// forget ends the interruptions of a source that is no longer watched.
func (f activeWatch) forget(w *Watcher) {
	if f.source != nil {
		for _, one := range f.source.requests {
			w.outages.forget(one.resource)
		}
	}
}

// followFrom switches to the chosen source. The last known state stays active until that source is completely listed.
func (d *onDemandWatch) followFrom(ctx context.Context, now activeWatch) activeWatch {
	chosen := d.choose(ctx, now.source)
	if chosen == nil || now.source != nil && now.source.resource == chosen.resource {
		return now
	}
	now.stop()
	now.forget(d.watcher)
	if now.source != nil && now.source.resource != "" {
		d.watcher.options.Log.Info("switched the source of node topology", "before", now.source.resource,
			"now", chosen.resource)
	}
	if d.onSource != nil {
		d.watcher.change(func(s *state) { d.onSource(s, chosen) })
	}
	ctx, cancel := context.WithCancel(ctx)
	for _, one := range chosen.requests {
		d.watcher.newStream(one).follow(ctx)
	}
	d.onSourceChange(chosen.resource)
	return activeWatch{chosen, cancel}
}

// dropNow drops the state and ends the stream. Objects that the Reflector delivers later are ignored.
func (d *onDemandWatch) dropNow(end context.CancelFunc) (isDropped bool) {
	d.watcher.change(func(s *state) {
		if isDropped = d.drop(s); isDropped {
			end()
		}
	})
	return isDropped
}

// reevaluate reports whether the resource is needed, and whether Services need more than the source has.
func (d *onDemandWatch) reevaluate(now *source) (isNeeded, isOutgrown bool) {
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	wanted := d.interestOf(d.watcher.state)
	return wanted.isNeeded, now != nil && now.hasZonesOnly && wanted.labels
}
