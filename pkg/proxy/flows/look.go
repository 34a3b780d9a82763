//go:build linux

package flows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const (
	// lookApart is the time between the two looks that must find a dial unanswered. Most answers that are on their way at
	// the first arrive before the second. The endpoint may well be alive: readiness fails, or a selector is changed, while
	// the pod serves on.
	lookApart = 400 * time.Millisecond
	// closedRest is the rest after reading all answered connections, as a multiple of the time that reading them took:
	// with many connections it is the longest look, and must not crowd out others.
	closedRest = 49
	// endAtMost is how many dials a look finds that go. It deletes them, so that the next one finds others.
	endAtMost = 8192
)

// Done is what a look did.
type Done struct {
	// Flows says what was done about UDP, in the families that were looked at.
	Flows map[model.Family]Pass
	// Anew are connections of TCP and SCTP that had not been answered, Closed are those that were over.
	Anew, Closed map[model.Protocol]int
	// Pending are dials that the look found unanswered and the one before did not: the next look decides.
	Pending int
	// CutOff: there were more connections to end than a look ends. The next one goes on.
	CutOff bool
}

// Pass is what one look at the UDP flows of a family did.
type Pass struct {
	Ended int           // flows
	Took  time.Duration // zero if the look failed
}

// look is what one look asks and finds.
type look struct {
	world                   // whose isLocal is asked once about each address
	families []model.Family // whose flows of UDP are looked at
	asked    []question
	// flows are those of UDP that go, dials those of TCP and SCTP.
	flows, dials []*conntrack.Entry
	// uncertain is why it is unknown whether some flows go, or some dials.
	uncertainFlows, uncertainDials error
}

// Look looks once. After an error some connections may be left; the next look finds them.
func (r *Reconciler) Look(ctx context.Context) (Done, error) {
	done := Done{Flows: map[model.Family]Pass{}, Anew: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
	l := &look{world: world{isLocal: askedOnce(r.isLocal)}}
	answers, err := r.looks.Ask(ctx, func() []conntrack.Question { return r.questions(l) }) // much may change while it waits
	if err != nil {
		return done, fmt.Errorf("listing connections in conntrack: %w", err)
	}
	var failures []error
	for i, answer := range answers {
		asked := &l.asked[i]
		if asked.ofAll {
			r.closedDue = l.now.Add(max(lookLater, closedRest*answer.Took))
		}
		switch {
		case asked.isOfUDP():
			failures = append(failures, r.endFlows(ctx, l, answer, &done))
		case errors.Is(answer.Err, conntrack.ErrCutOff):
			done.CutOff = true
		case answer.Err != nil:
			failures = append(failures, fmt.Errorf("listing dials in conntrack: %w", answer.Err))
		}
	}
	unanswered, closed := r.ripe(l, &done)
	failures = append(failures, l.uncertainDials, r.endUnanswered(ctx, unanswered, l.isLocal, &done),
		deleteAll(ctx, r.looks, closed, r.stillGoes(l.isLocal), func(e *conntrack.Entry) { done.Closed[e.Protocol]++ }))
	return done, errors.Join(failures...)
}

// questions returns what a look asks. The flows of UDP come first, because their clients wait.
func (r *Reconciler) questions(l *look) []conntrack.Question {
	if l.world = r.world(l.isLocal); l.owners == nil {
		return nil
	}
	l.families = l.owners.ChangedAfter(l.looked)
	dials := dialsTo(r.addrsLeft(l.now), l.isUnsure(), !l.now.Before(r.closedDue))
	r.isWatching = len(dials) > 0
	l.asked = append(flowsOf(l.families), dials...)
	ask := make([]conntrack.Question, len(l.asked))
	for i := range l.asked {
		each := l.foundDial
		if l.asked[i].isOfUDP() {
			each = l.foundFlow
		}
		ask[i] = conntrack.Question{Filter: l.asked[i].filter, Each: each}
	}
	return ask
}

func (l *look) foundFlow(e *conntrack.Entry) bool {
	reason, err := l.judge(e)
	if err != nil {
		l.uncertainFlows = err
	}
	if reason.Goes() {
		found := *e
		l.flows = append(l.flows, &found)
	}
	return true
}

func (l *look) foundDial(e *conntrack.Entry) bool {
	if e.Protocol == model.UDP {
		return true
	}
	reason, err := l.judge(e)
	if err != nil {
		l.uncertainDials = err
	}
	if reason.Goes() {
		found := *e
		l.dials = append(l.dials, &found)
	}
	return len(l.dials) < endAtMost
}

// world is what entries are judged by now.
func (r *Reconciler) world(isLocal selection.IsLocal) world {
	return world{now: r.now(), owners: r.owners.Snapshot(), reader: r.owners, isLocal: isLocal, looked: r.looked}
}

// endFlows deletes the flows of UDP that a look found, unless their endpoint is back.
func (r *Reconciler) endFlows(ctx context.Context, l *look, answer conntrack.Answer, done *Done) error {
	err := errors.Join(answer.Err, l.uncertainFlows)
	if err != nil {
		err = fmt.Errorf("listing the UDP flows in conntrack: %w", err)
	}
	began, ended := time.Now(), map[model.Family]int{}
	isStale := func(e *conntrack.Entry) (bool, error) {
		w := r.world(l.isLocal)
		reason, err := w.judge(e)
		return reason.Goes(), err
	}
	err = errors.Join(err, deleteAll(ctx, r.looks, l.flows, isStale, func(e *conntrack.Entry) { ended[e.Family()]++ }))
	for _, family := range l.families {
		pass := Pass{Ended: ended[family]}
		if err == nil {
			pass.Took = answer.Took + time.Since(began)
		}
		done.Flows[family] = pass
	}
	if err == nil {
		r.looked = l.owners.Number
	}
	return err
}

// ripe returns those of the entries that a look found which end now. A dial that was found for the first time does not,
// and is remembered; but for those to a node that is known not to answer.
func (r *Reconciler) ripe(l *look, done *Done) (unanswered, closed []*conntrack.Entry) {
	ended := r.now()
	first := make(map[identity]time.Time, len(l.dials))
	for _, e := range l.dials {
		if e.Status&conntrack.SeenReply != 0 {
			closed = append(closed, e)
			continue
		}
		if owner := l.owners.Owner(e.Protocol, e.Dialled()); owner != nil && owner.MayStayOpen(e.Answerer()) {
			unanswered = append(unanswered, e)
			continue
		}
		this := identity{e.Protocol, e.Original, e.Reply, e.ID}
		at, isKnown := r.unanswered[this]
		switch {
		case !isKnown:
			at = ended
			fallthrough
		case l.now.Sub(at) < lookApart:
			done.Pending++
		default:
			unanswered = append(unanswered, e)
		}
		first[this] = at
	}
	r.unanswered = first
	return unanswered, closed
}

// addrsLeft returns the addresses of endpoints that left.
func (r *Reconciler) addrsLeft(now time.Time) []netip.Addr {
	var addrs []netip.Addr
	known := map[netip.Addr]bool{}
	r.owners.EachLeft(now.Add(-LookFor), func(endpoint owners.Endpoint) bool {
		if addr := endpoint.Addr.Addr(); endpoint.Protocol != model.UDP && !known[addr] {
			known[addr] = true
			addrs = append(addrs, addr)
		}
		return true
	})
	return addrs
}

// endUnanswered deletes dials that are still unanswered, and whose endpoint may still not answer.
func (r *Reconciler) endUnanswered(ctx context.Context, dials []*conntrack.Entry, isLocal selection.IsLocal, done *Done) error {
	w := r.world(isLocal) // endpoints may have come back since the table was read
	var uncertain error
	dials = slices.DeleteFunc(dials, func(e *conntrack.Entry) bool {
		reason, err := w.judge(e)
		if err != nil {
			uncertain = err
		}
		return !reason.Goes()
	})
	if len(dials) == 0 {
		return uncertain
	}
	count := func(e *conntrack.Entry) { done.Anew[e.Protocol]++ }
	deleted, err := r.looks.DeleteUnanswered(dials)
	for _, e := range deleted {
		count(e)
	}
	if errors.Is(err, conntrack.ErrUntested) {
		err = deleteAll(ctx, r.looks, dials, r.stillGoes(isLocal), count)
	}
	return errors.Join(uncertain, err)
}

// stillGoes returns the judgement of an entry as it is now.
func (r *Reconciler) stillGoes(isLocal selection.IsLocal) func(*conntrack.Entry) (bool, error) {
	return func(e *conntrack.Entry) (bool, error) {
		now, isThere, err := r.looks.Get(e)
		if err != nil || !isThere {
			return false, err
		}
		w := r.world(isLocal)
		reason, err := w.judge(&now)
		return reason.Goes(), err
	}
}
