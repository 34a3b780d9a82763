package daemon

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// evacuations watches the clock for those that have an end. Labels say when that is, also while the API server is away.
type evacuations struct {
	sync.Mutex // held while something is delivered, so that an end is not overtaken by what came before it

	going map[string]model.Evacuation // those that were delivered last
	timer *time.Timer
}

// take notes the evacuations of a change, and returns the change without those that are over.
func (e *evacuations) take(change model.Change, now time.Time) model.Change {
	if len(change.Evacuations) == 0 {
		return change
	}
	change = change.WithoutEnded(now)
	if e.going == nil {
		e.going = map[string]model.Evacuation{}
	}
	for node, evacuation := range change.Evacuations {
		if delete(e.going, node); evacuation != nil {
			e.going[node] = *evacuation
		}
	}
	return change
}

// ended returns the change that the end of some makes; it is empty if none is over.
func (e *evacuations) ended(now time.Time) model.Change {
	all := model.Change{Evacuations: map[string]*model.Evacuation{}}
	for node, evacuation := range e.going {
		all.Evacuations[node] = &evacuation
	}
	all = all.WithoutEnded(now)
	maps.DeleteFunc(all.Evacuations, func(_ string, evacuation *model.Evacuation) bool { return evacuation != nil })
	return e.take(all, now)
}

// rest returns how long it is until the next end, and whether there is any.
func (e *evacuations) rest(now time.Time) (time.Duration, bool) {
	var next *time.Time
	for _, evacuation := range e.going {
		if evacuation.Until != nil && (next == nil || evacuation.Until.Before(*next)) {
			next = evacuation.Until
		}
	}
	if next == nil {
		return 0, false
	}
	return next.Sub(now), true
}

// longestRest is how long an end is waited for without a look at the clock: somebody may set it.
const longestRest = time.Minute

// awaitEnds delivers the ends when their time comes. The caller holds the lock.
func (f *feed) awaitEnds(ctx context.Context) {
	if f.evacuations.timer != nil {
		f.evacuations.timer.Stop()
	}
	rest, some := f.evacuations.rest(time.Now())
	if !some {
		return
	}
	f.evacuations.timer = time.AfterFunc(min(max(rest, 0), longestRest), func() {
		f.evacuations.Lock()
		defer f.evacuations.Unlock()
		if ctx.Err() != nil {
			return
		}
		if change := f.evacuations.ended(time.Now()); len(change.Evacuations) > 0 {
			f.judgeNode(change)
			f.send(ctx, fromObjects, change)
		}
		f.awaitEnds(ctx)
	})
}
