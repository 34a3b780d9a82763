//go:build linux

package conntrack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const (
	// retryAfter is how long after a failure flows are looked at again.
	retryAfter = time.Second
	// A pass walks the whole hash table: some 9 ms where it has the 262,144 buckets of most nodes, however few flows there
	// are. Whoever changes a Service of UDP over and over must not keep a processor of every node busy by that. So after a
	// pass the reconciler rests for 19 times as long as it took: a twentieth of a processor. It never rests for longer than
	// restAtMost, because flows of others wait meanwhile, so that where a pass takes longer than a 19th of that, it is more
	// than a twentieth. kube-proxy's least time between two looks is the same second (its minSyncPeriod).
	restFor    = 19
	restAtMost = time.Second
	// lastPass bounds the pass that follows the end of the program.
	lastPass = 5 * time.Second
)

// Reconciler ends flows beside the work of changing the rules: to read a large table takes longer than many changes.
type Reconciler struct {
	forget func(context.Context, []selection.Flows, selection.Scope) (int, error)

	mutex   sync.Mutex
	pending map[model.Frontend]selection.Flows
	scope   selection.Scope
	noted   chan struct{}
}

// Pass is what one look at the flows of a family did.
type Pass struct {
	Ended int           // flows
	Took  time.Duration // zero if the look failed
}

// NewReconciler returns a reconciler that has nothing to do yet.
func NewReconciler(conn *Conn) *Reconciler { return newReconciler(conn.Forget) }

func newReconciler(forget func(context.Context, []selection.Flows, selection.Scope) (int, error)) *Reconciler {
	return &Reconciler{forget: forget, pending: map[model.Frontend]selection.Flows{}, noted: make(chan struct{}, 1)}
}

// Note has the flows to some frontends looked at: at once, or when the pass that is going on, and the rest after it, are
// over. What is noted of a frontend takes the place of what was noted before, but for who was an endpoint then. It returns
// at once and keeps the slices, which must not be changed.
func (r *Reconciler) Note(flows []selection.Flows, scope selection.Scope) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, newest := range flows {
		r.pending[newest.Frontend] = newest.After(r.pending[newest.Frontend])
	}
	r.scope = scope
	r.wake()
}

// wake has Run look at what is pending. The mutex is held.
func (r *Reconciler) wake() {
	if len(r.pending) == 0 {
		return
	}
	select {
	case r.noted <- struct{}{}:
	default:
	}
}

// Run looks at what is noted until ctx ends, and once more then. It reports each pass, by the families that were
// looked at, and why some flows may be left: those are looked at again a second later. What is noted during a pass, or
// in the rest after it, waits for the end of both, and is looked at together.
func (r *Reconciler) Run(ctx context.Context, report func(passes map[model.Family]Pass, err error)) {
	for r.awaitWork(ctx) {
		rest := r.pass(ctx, report)
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPass)
	defer cancel()
	r.pass(last, report)
}

// awaitWork waits until something is noted. It reports false once ctx has ended, even if something is.
func (r *Reconciler) awaitWork(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-r.noted:
	}
	return ctx.Err() == nil
}

// pass looks at everything that is pending, and returns how long to rest before the next pass.
func (r *Reconciler) pass(ctx context.Context, report func(map[model.Family]Pass, error)) (rest time.Duration) {
	pending, scope := r.take()
	if len(pending) == 0 {
		return 0
	}
	passes := map[model.Family]Pass{}
	var failures []error
	for _, family := range model.Families {
		flows := familyFlows(pending, family)
		if len(flows) == 0 {
			continue
		}
		began := time.Now()
		count, err := r.forget(ctx, flows, scope)
		pass := Pass{Ended: count, Took: time.Since(began)}
		rest += restFor * pass.Took
		if err != nil {
			pass.Took = 0
			r.putBack(flows)
			if !errors.Is(err, context.Canceled) { // else the program ends, and its last pass looks at them
				failures = append(failures, err)
			}
		}
		passes[family] = pass
	}
	report(passes, errors.Join(failures...))
	if len(failures) > 0 {
		return retryAfter
	}
	return min(rest, restAtMost)
}

func (r *Reconciler) take() (map[model.Frontend]selection.Flows, selection.Scope) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	pending := r.pending
	r.pending = map[model.Frontend]selection.Flows{}
	return pending, r.scope
}

// putBack notes again what could not be done, unless something newer has been noted meanwhile.
func (r *Reconciler) putBack(flows []selection.Flows) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, failed := range flows {
		if newer, isNoted := r.pending[failed.Frontend]; isNoted {
			failed = newer.After(failed)
		}
		r.pending[failed.Frontend] = failed
	}
	r.wake()
}

func familyFlows(pending map[model.Frontend]selection.Flows, family model.Family) []selection.Flows {
	var flows []selection.Flows
	for _, frontend := range slices.SortedFunc(maps.Keys(pending), model.Frontend.Compare) {
		if model.FamilyOf(frontend.Addr) == family {
			flows = append(flows, pending[frontend])
		}
	}
	return flows
}
