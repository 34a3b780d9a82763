//go:build linux

package flows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Pass is what one look at the flows of a family did.
type Pass struct {
	Ended int           // flows
	Took  time.Duration // zero if the look failed
}

// Noted returns flows to be looked at.
type Noted func() ([]selection.Flows, selection.Scope)

// Forget ends the UDP flows of the noted frontends whose endpoint may not answer them, in the families that have some.
// Their next packet is the first of a new flow. Frontends of other protocols are ignored. Conntrack is read only if
// there is a UDP frontend. Noted is called when the look begins, and not at all if ctx ends before.
//
// The rules must have changed before. A frontend that is gone is given without endpoints that may answer. A node port
// is given with its Service's endpoints, including those that just left: at addresses that do not serve it, only their
// flows end. Give it together with the frontends that have the same port number at an address of the node: they own the
// flows to that address, which would otherwise be judged as the node port's.
//
// After an error some flows may be left. Calling again with the same flows ends them, and does not harm flows that
// began meanwhile.
func Forget(ctx context.Context, looks *conntrack.Looks, isLocal selection.IsLocal, noted Noted) (map[model.Family]Pass, error) {
	return forgetUnless(ctx, looks, isLocal, noted, func(netip.AddrPort) bool { return false })
}

// forgetUnless is Forget, but for flows to addresses of which something newer has been noted since the look began. The
// next pass judges them.
func forgetUnless(
	ctx context.Context, looks *conntrack.Looks, isLocal selection.IsLocal, noted Noted, isNewer func(dialled netip.AddrPort) bool,
) (map[model.Family]Pass, error) {
	var v verdicts
	var found []conntrack.Entry
	var unknown error
	answers, err := looks.Ask(ctx, func() []conntrack.Question {
		flows, scope := noted()
		if v = newVerdicts(flows, scope, askedOnce(isLocal)); len(v.families) == 0 {
			return nil
		}
		return []conntrack.Question{{Filter: v.filter(), Each: func(e *conntrack.Entry) bool {
			isStale, err := v.isStale(flowIn(e))
			if err != nil {
				unknown = err
			}
			if isStale {
				found = append(found, *e)
			}
			return true
		}}}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("listing the UDP flows in conntrack: %w", err)
	case len(answers) == 0:
		return nil, nil
	}
	if err = errors.Join(answers[0].Err, unknown); err != nil {
		err = fmt.Errorf("listing the UDP flows in conntrack: %w", err)
	}
	began := time.Now()
	ended := map[model.Family]int{}
	stale := make([]*conntrack.Entry, len(found))
	for i := range found {
		stale[i] = &found[i]
	}
	isStale := func(e *conntrack.Entry) (bool, error) { return !isNewer(e.Dialled()), nil }
	err = errors.Join(err, deleteAll(ctx, looks, stale, isStale, func(e *conntrack.Entry) { ended[e.Family()]++ }))
	passes := map[model.Family]Pass{}
	for family := range v.families {
		passes[family] = Pass{Ended: ended[family]}
		if err == nil {
			passes[family] = Pass{ended[family], answers[0].Took + time.Since(began)}
		}
	}
	return passes, err
}

// filter is for the UDP flows of the families that have a frontend.
func (v verdicts) filter() conntrack.Filter {
	filter := conntrack.Filter{Protocol: model.UDP}
	if len(v.families) == 1 {
		for family := range v.families {
			filter.Family = conntrack.Only(family)
		}
	}
	return filter
}

// askedOnce asks about each address once, so that a look costs no more than one question for each address in the table.
// It asks nothing more after an error: each further question might wait as long.
func askedOnce(isLocal selection.IsLocal) selection.IsLocal {
	answers := map[netip.Addr]bool{}
	var failed error
	return func(addr netip.Addr) (bool, error) {
		answer, known := answers[addr]
		if known || failed != nil {
			return answer, failed
		}
		answer, failed = isLocal(addr)
		answers[addr] = answer
		return answer, failed
	}
}

// deleteAll deletes those entries that still go when their turn comes, and notes those that were there. An entry that the
// kernel keeps because a flowtable forwards the flow (EBUSY, IPS_OFFLOAD) is skipped; any other error ends the work.
func deleteAll(
	ctx context.Context, table conntrack.Table, entries []*conntrack.Entry,
	stillGoes func(*conntrack.Entry) (bool, error), deleted func(*conntrack.Entry),
) error {
	var busy []error
	for i, e := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("ending the last %d of %d stale flows: %w", len(entries)-i, len(entries), err)
		}
		goes, err := stillGoes(e)
		done := false
		if goes && err == nil {
			done, err = table.Delete(e)
		}
		switch {
		case errors.Is(err, unix.EBUSY):
			busy = append(busy, fmt.Errorf("ending the flow %s: %w", e, err))
		case err != nil:
			return errors.Join(append(busy, fmt.Errorf("ending the flow %s: %w", e, err))...)
		case done:
			deleted(e)
		}
	}
	if len(busy) > 1 {
		return fmt.Errorf("%w; and %d more", busy[0], len(busy)-1)
	}
	return errors.Join(busy...)
}
