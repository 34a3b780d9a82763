//go:build linux

package flows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	// closedRest is the rest after reading all answered connections, as a multiple of the time that reading them took:
	// with many connections it is the longest look, and must not crowd out others.
	closedRest = 49
)

// Dials ends connections of TCP and SCTP that nobody answers and whose endpoint has left. The client's own next packet, a
// second later, meets the rules as if it were the first.
//
// It looks only if an endpoint left, at once and for two minutes after. Otherwise it waits, and costs nothing.
type Dials struct {
	looks   *conntrack.Looks
	owners  *owners.Reader
	isLocal selection.IsLocal
	now     func() time.Time
	// closedDue is when to read all answered connections. Only one goroutine looks.
	closedDue time.Time
}

// Drawn is what a look did.
type Drawn struct {
	// Anew are connections that had not been answered, Closed are those that were over.
	Anew, Closed map[model.Protocol]int
	// CutOff: there were more connections than a look reads. The next one goes on.
	CutOff bool
}

// NewDials returns dials to the frontends of some owners.
func NewDials(looks *conntrack.Looks, of *owners.Reader, isLocal selection.IsLocal) *Dials {
	return &Dials{looks: looks, owners: of, isLocal: isLocal, now: time.Now}
}

// Run looks whenever endpoints have left, until ctx ends. It reports what each look did, and why some connections may
// be left.
func (d *Dials) Run(ctx context.Context, report func(Drawn, error)) {
	var until time.Time
	next := time.NewTimer(0)
	defer next.Stop()
	next.Stop()
	wait := lookSoon
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.owners.EndpointsLeft():
			until, wait = time.Now().Add(LookFor), lookSoon
		case <-next.C:
			wait = lookLater
		}
		drawn, err := d.Look(ctx)
		if ctx.Err() != nil {
			return
		}
		if report(drawn, err); err != nil || drawn.CutOff {
			wait = lookSoon
		}
		if time.Now().Before(until) {
			next.Reset(wait)
		}
	}
}

// Look looks once.
func (d *Dials) Look(ctx context.Context) (Drawn, error) {
	drawn := Drawn{Anew: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
	var w world
	var asked []question
	var found []conntrack.Entry
	answers, err := d.looks.Ask(ctx, func() []conntrack.Question { // endpoints may have left while it waited
		w = world{now: d.now(), owners: d.owners.Snapshot(), left: d.owners.Left, isLocal: askedOnce(d.isLocal)}
		if w.owners == nil {
			return nil
		}
		asked = questions(d.addrsLeft(w.now), w.isUnsure(), !w.now.Before(d.closedDue))
		ask := make([]conntrack.Question, len(asked))
		for i := range asked {
			read := 0
			ask[i] = conntrack.Question{Filter: asked[i].filter, Each: func(e *conntrack.Entry) bool {
				if read++; w.glance(e).Goes() {
					found = append(found, *e)
				}
				return read < asked[i].atMost && len(found) < endAtMost
			}}
		}
		return ask
	})
	if err != nil {
		return drawn, fmt.Errorf("listing dials in conntrack: %w", err)
	}
	var failures []error
	for i, answer := range answers {
		if asked[i].ofAll {
			d.closedDue = w.now.Add(max(lookLater, closedRest*answer.Took))
		}
		switch {
		case errors.Is(answer.Err, conntrack.ErrCutOff):
			drawn.CutOff = drawn.CutOff || !asked[i].ofAll || len(found) >= endAtMost
		case answer.Err != nil:
			failures = append(failures, fmt.Errorf("listing dials in conntrack: %w", answer.Err))
		}
	}
	return drawn, errors.Join(append(failures, d.end(ctx, &w, found, &drawn))...)
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

// end judges entries, and deletes those that go.
func (d *Dials) end(ctx context.Context, w *world, entries []conntrack.Entry, drawn *Drawn) error {
	var failures []error
	var going []conntrack.Entry
	for i := range entries {
		reason, err := w.judge(&entries[i])
		if err != nil {
			failures = append(failures, err)
			break // the kernel does not answer: the others wait, too
		}
		if reason.Goes() {
			going = append(going, entries[i])
		}
	}
	failures = append(failures, deleteAll(ctx, d.looks, going, func(e *conntrack.Entry) {
		if e.Status&conntrack.SeenReply == 0 {
			drawn.Anew[e.Protocol]++
		} else {
			drawn.Closed[e.Protocol]++
		}
	}))
	return errors.Join(failures...)
}
