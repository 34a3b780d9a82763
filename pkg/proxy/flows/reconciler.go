//go:build linux

package flows

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

const (
	// retryAfter is how long after a failure flows are looked at again.
	retryAfter = time.Second
	// lastPass bounds the pass that follows the end of the program.
	lastPass = 5 * time.Second
)

// Reconciler ends flows in parallel with changes of the rules: reading a large table takes longer than many changes.
// The table that it reads makes it wait, so changing a UDP Service over and over keeps no processor busy.
type Reconciler struct {
	forget forget

	mutex   sync.Mutex
	pending map[model.Frontend]selection.Flows
	scope   selection.Scope
	noted   wake.Signal
}

// forget is Forget, of a table.
type forget func(context.Context, Noted) (map[model.Family]Pass, error)

// NewReconciler returns a reconciler of a table that has nothing to do yet.
func NewReconciler(looks *conntrack.Looks, isLocal selection.IsLocal) *Reconciler {
	r := newReconciler(nil)
	r.forget = func(ctx context.Context, noted Noted) (map[model.Family]Pass, error) {
		return forgetUnless(ctx, looks, isLocal, noted, r.isNoted)
	}
	return r
}

func newReconciler(forget forget) *Reconciler {
	return &Reconciler{forget: forget, pending: map[model.Frontend]selection.Flows{}, noted: wake.NewSignal()}
}

// Note has the flows to some frontends looked at: at once, or when the pass that is going on is over. What is noted for
// a frontend replaces what was noted before, except for the former endpoints. It returns at once and keeps the slices,
// which must not be changed.
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
	if len(r.pending) > 0 {
		r.noted.Send()
	}
}

// Run looks at what is noted until ctx ends, and then once more. It reports each pass, by the families that were looked
// at, and why some flows may be left: those are looked at again a second later. What is noted during a pass waits for
// its end, and shares the next pass.
func (r *Reconciler) Run(ctx context.Context, report func(passes map[model.Family]Pass, err error)) {
	for r.awaitWork(ctx) {
		if r.pass(ctx, report) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
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

// pass looks at everything that is pending, and reports whether that succeeded.
func (r *Reconciler) pass(ctx context.Context, report func(map[model.Family]Pass, error)) bool {
	if !r.isPending() {
		return true
	}
	var flows []selection.Flows
	passes, err := r.forget(ctx, func() ([]selection.Flows, selection.Scope) { // more may have been noted while it waited
		var scope selection.Scope
		flows, scope = r.take()
		return flows, scope
	})
	if err != nil {
		r.putBack(flows)
	}
	if errors.Is(err, context.Canceled) {
		err = nil // the program ends, and its last pass looks at them
	}
	report(passes, err)
	return err == nil
}

func (r *Reconciler) isPending() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.pending) > 0
}

// isNoted reports whether something is pending for a frontend that owns the flows to an address.
func (r *Reconciler) isNoted(dialled netip.AddrPort) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, addr := range []netip.Addr{dialled.Addr(), model.AnyAddr(model.FamilyOf(dialled.Addr()))} {
		if _, is := r.pending[model.Frontend{Addr: addr, Protocol: model.UDP, Port: dialled.Port()}]; is {
			return true
		}
	}
	return false
}

func (r *Reconciler) take() ([]selection.Flows, selection.Scope) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	flows := slices.SortedFunc(maps.Values(r.pending), func(a, b selection.Flows) int { return a.Frontend.Compare(b.Frontend) })
	r.pending = map[model.Frontend]selection.Flows{}
	return flows, r.scope
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
