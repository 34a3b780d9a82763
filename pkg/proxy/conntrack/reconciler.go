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

// Note has the flows to some frontends looked at, as soon as the table can be read. What is noted of a frontend takes
// the place of what was noted before. It returns at once and keeps the slices, which must not be changed.
func (r *Reconciler) Note(flows []selection.Flows, scope selection.Scope) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, newest := range flows {
		r.pending[newest.Frontend] = newest
	}
	r.scope = scope
	if len(r.pending) == 0 {
		return
	}
	select {
	case r.noted <- struct{}{}:
	default:
	}
}

// Run looks at what is noted until ctx ends, and once more then. It reports each pass, by the families that were
// looked at, and why some flows may be left: those are looked at again a second later.
func (r *Reconciler) Run(ctx context.Context, report func(passes map[model.Family]Pass, err error)) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPass)
			defer cancel()
			r.pass(last, report)
			return
		case <-r.noted:
		case <-again:
		}
		again = nil
		if !r.pass(ctx, report) {
			again = time.After(retryAfter)
		}
	}
}

// pass looks at everything that is pending, and reports whether nothing is left of it.
func (r *Reconciler) pass(ctx context.Context, report func(map[model.Family]Pass, error)) bool {
	pending, scope := r.take()
	if len(pending) == 0 {
		return true
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
		if err != nil {
			pass.Took = 0
			failures = append(failures, err)
			r.putBack(flows)
		}
		passes[family] = pass
	}
	report(passes, errors.Join(failures...))
	return len(failures) == 0
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
		if _, newer := r.pending[failed.Frontend]; !newer {
			r.pending[failed.Frontend] = failed
		}
	}
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
