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

// When to look again. A packet that met the old rules makes its entry a moment after they changed. A connection to an
// endpoint that left may close at any time.
const (
	lookSoon  = time.Second
	lookLater = 5 * time.Second
	// lookApart is the time between the two looks that must find a dial unanswered. Most answers that are on their way at
	// the first arrive before the second. The endpoint may well be alive: readiness fails, or a selector is changed, while
	// the pod serves on.
	lookApart = 400 * time.Millisecond
	// closedRest is the rest after reading all answered connections, as a multiple of the time that reading them took:
	// with many connections it is the longest look, and must not crowd out others.
	closedRest = 49
	// endAtMost is how many connections a look finds that go. It deletes them, so that the next one finds others.
	endAtMost = 8192
)

// Dials ends connections of TCP and SCTP that nobody answers and whose endpoint has left. The client's own next packet
// meets the rules as if it were the first.
//
// A dial ends only if two looks, some time apart, found it unanswered, and if it is still unanswered when it is deleted.
// Where the kernel can, the kernel itself tests that (conntrack.Table.DeleteUnanswered). Elsewhere the entry is read
// again, by itself, right before it is deleted.
//
// It looks only if an endpoint left, at once and for two minutes after. Otherwise it waits, and costs nothing.
type Dials struct {
	looks   *conntrack.Looks
	owners  *owners.Reader
	isLocal selection.IsLocal
	now     func() time.Time
	// closedDue is when to read all answered connections. Only one goroutine looks.
	closedDue time.Time
	// unanswered are the dials that the last look found, and when a look first found them.
	unanswered map[identity]time.Time
}

// identity tells an entry from all others.
type identity struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
	id              uint32
}

// Drawn is what a look did.
type Drawn struct {
	// Anew are connections that had not been answered, Closed are those that were over.
	Anew, Closed map[model.Protocol]int
	// Pending are dials that the look found unanswered and the one before did not: the next look decides.
	Pending int
	// CutOff: there were more connections to end than a look ends. The next one goes on.
	CutOff bool
}

// NewDials returns dials to the frontends of some owners.
func NewDials(looks *conntrack.Looks, of *owners.Reader, isLocal selection.IsLocal) *Dials {
	return &Dials{looks: looks, owners: of, isLocal: isLocal, now: time.Now}
}

// Run looks whenever endpoints have left, until ctx ends. It reports what each look did, and why some connections may
// be left.
func (d *Dials) Run(ctx context.Context, report func(Drawn, error)) {
	var left time.Time
	next := time.NewTimer(0)
	defer next.Stop()
	next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.owners.EndpointsLeft():
			left = time.Now()
		case <-next.C:
		}
		drawn, err := d.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		report(drawn, err)
		if since := time.Since(left); since < LookFor {
			next.Reset(drawn.nextLook(since, err))
		}
	}
}

// nextLook returns when to look again after a look, by the time since endpoints left.
func (d *Drawn) nextLook(sinceLeft time.Duration, err error) time.Duration {
	switch {
	case d.Pending > 0 || d.CutOff:
		return lookApart
	case err != nil || sinceLeft < lookSoon:
		return lookSoon
	}
	return lookLater
}

// Look looks once.
func (d *Dials) Look(ctx context.Context) (Drawn, error) {
	drawn := Drawn{Anew: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
	isLocal := askedOnce(d.isLocal)
	var began time.Time
	var asked []question
	var found []conntrack.Entry
	var uncertain error
	answers, err := d.looks.Ask(ctx, func() []conntrack.Question { // endpoints may have left while it waited
		w := d.world(isLocal)
		if began = w.now; w.owners == nil {
			return nil
		}
		asked = questions(d.addrsLeft(began), w.isUnsure(), !began.Before(d.closedDue))
		ask := make([]conntrack.Question, len(asked))
		for i := range asked {
			ask[i] = conntrack.Question{Filter: asked[i].filter, Each: func(e *conntrack.Entry) bool {
				reason, err := w.judge(e)
				if err != nil {
					uncertain = err
				}
				if reason.Goes() {
					found = append(found, *e)
				}
				return len(found) < endAtMost
			}}
		}
		return ask
	})
	if err != nil {
		return drawn, fmt.Errorf("listing dials in conntrack: %w", err)
	}
	failures := []error{uncertain}
	for i, answer := range answers {
		if asked[i].ofAll {
			d.closedDue = began.Add(max(lookLater, closedRest*answer.Took))
		}
		switch {
		case errors.Is(answer.Err, conntrack.ErrCutOff):
			drawn.CutOff = true
		case answer.Err != nil:
			failures = append(failures, fmt.Errorf("listing dials in conntrack: %w", answer.Err))
		}
	}
	unanswered, closed := d.ripe(found, began, &drawn)
	failures = append(failures, d.endUnanswered(ctx, unanswered, isLocal, &drawn),
		deleteAll(ctx, d.looks, closed, d.stillGoes(isLocal), func(e *conntrack.Entry) { drawn.Closed[e.Protocol]++ }))
	return drawn, errors.Join(failures...)
}

// world is what entries are judged by now.
func (d *Dials) world(isLocal selection.IsLocal) world {
	return world{now: d.now(), owners: d.owners.Snapshot(), left: d.owners.Left, isLocal: isLocal}
}

// ripe returns those of the entries that a look found which end now. A dial that was found for the first time does not,
// and is remembered.
func (d *Dials) ripe(found []conntrack.Entry, began time.Time, drawn *Drawn) (unanswered, closed []*conntrack.Entry) {
	ended := d.now()
	first := make(map[identity]time.Time, len(found))
	for i := range found {
		e := &found[i]
		if e.Status&conntrack.SeenReply != 0 {
			closed = append(closed, e)
			continue
		}
		this := identity{e.Protocol, e.Original, e.Reply, e.ID}
		at, isKnown := d.unanswered[this]
		switch {
		case !isKnown:
			at = ended
			fallthrough
		case began.Sub(at) < lookApart:
			drawn.Pending++
		default:
			unanswered = append(unanswered, e)
		}
		first[this] = at
	}
	d.unanswered = first
	return unanswered, closed
}

// addrsLeft returns the addresses of endpoints that left.
func (d *Dials) addrsLeft(now time.Time) []netip.Addr {
	var addrs []netip.Addr
	known := map[netip.Addr]bool{}
	d.owners.EachLeft(now.Add(-LookFor), func(endpoint owners.Endpoint) bool {
		if addr := endpoint.Addr.Addr(); endpoint.Protocol != model.UDP && !known[addr] {
			known[addr] = true
			addrs = append(addrs, addr)
		}
		return true
	})
	return addrs
}

// endUnanswered deletes dials that are still unanswered, and whose endpoint may still not answer.
func (d *Dials) endUnanswered(ctx context.Context, dials []*conntrack.Entry, isLocal selection.IsLocal, drawn *Drawn) error {
	w := d.world(isLocal) // endpoints may have come back since the table was read
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
	count := func(e *conntrack.Entry) { drawn.Anew[e.Protocol]++ }
	deleted, err := d.looks.DeleteUnanswered(dials)
	for _, e := range deleted {
		count(e)
	}
	if errors.Is(err, conntrack.ErrUntested) {
		err = deleteAll(ctx, d.looks, dials, d.stillGoes(isLocal), count)
	}
	return errors.Join(uncertain, err)
}

// stillGoes returns the judgement of an entry as it is now.
func (d *Dials) stillGoes(isLocal selection.IsLocal) func(*conntrack.Entry) (bool, error) {
	return func(e *conntrack.Entry) (bool, error) {
		now, isThere, err := d.looks.Get(e)
		if err != nil || !isThere {
			return false, err
		}
		w := d.world(isLocal)
		reason, err := w.judge(&now)
		return reason.Goes(), err
	}
}
