//go:build linux

package conntrackgc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const (
	// confirmInterval is the time between the two looks that must find a dial unanswered. Most answers that are on their way at
	// the first arrive before the second. The endpoint may well be alive: readiness fails, or a selector is changed, while
	// the pod serves on.
	confirmInterval = 400 * time.Millisecond
	// closedCooldownFactor is the rest after reading all answered connections, as a multiple of the time that reading them took:
	// with many connections it is the longest look, and must not crowd out others.
	closedCooldownFactor = 49
	// maxDeletes is how many dials a look finds that go. It deletes them, so that the next one finds others.
	maxDeletes = 8192
)

// CleanupResult is what a look did.
type CleanupResult struct {
	// Flows says what was done about UDP, in the families that were looked at.
	Flows map[model.Family]PassResult
	// Unreplied are connections of TCP and SCTP that had not been answered, Closed are those that were over.
	Unreplied, Closed map[model.Protocol]int
	// Pending are dials that the look found unanswered and the one before did not: the next look decides.
	Pending int
	// Truncated: there were more connections to end than a look ends. The next one goes on.
	Truncated bool
}

// PassResult is what one look at the UDP flows of a family did.
type PassResult struct {
	Deleted  int           // flows
	Duration time.Duration // zero if the look failed
}

// scan is what one look asks and finds.
type scan struct {
	classifier                // whose isLocal is asked once about each address
	families   []model.Family // whose flows of UDP are looked at
	queries    []query
	// staleFlows are those of UDP that go, dials those of TCP and SCTP.
	staleFlows, staleDials []*conntrack.Entry
	// uncertain is why it is unknown whether some flows go, or some dials.
	uncertainFlows, uncertainDials error
}

// CleanOnce looks once. After an error some connections may be left; the next look finds them.
func (r *Reconciler) CleanOnce(ctx context.Context) (CleanupResult, error) {
	done := CleanupResult{Flows: map[model.Family]PassResult{}, Unreplied: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
	l := &scan{classifier: classifier{isLocal: memoizeIsLocal(r.isLocal)}}
	results, err := r.dumps.Query(ctx, func() []conntrack.Query { return r.newQueries(l) }) // much may change while it waits
	if err != nil {
		return done, fmt.Errorf("listing connections in conntrack: %w", err)
	}
	var failures []error
	for i, result := range results {
		query := &l.queries[i]
		if query.scansReplied {
			r.closedDue = l.now.Add(max(longRescan, closedCooldownFactor*result.Took))
		}
		switch {
		case query.isOfUDP():
			failures = append(failures, r.deleteStaleFlows(ctx, l, result, &done))
		case errors.Is(result.Err, conntrack.ErrTruncated):
			done.Truncated = true
		case result.Err != nil:
			failures = append(failures, fmt.Errorf("listing dials in conntrack: %w", result.Err))
		}
	}
	unreplied, closed := r.dueForDeletion(l, &done)
	failures = append(failures, l.uncertainDials, r.deleteUnreplied(ctx, unreplied, l.isLocal, &done),
		deleteAll(ctx, r.dumps, closed, r.isStillStale(l.isLocal), func(e *conntrack.Entry) { done.Closed[e.Protocol]++ }))
	return done, errors.Join(failures...)
}

// newQueries returns what a look asks. The flows of UDP come first, because their clients wait.
func (r *Reconciler) newQueries(l *scan) []conntrack.Query {
	if l.classifier = r.newClassifier(l.isLocal); l.owners == nil {
		return nil
	}
	l.families = l.owners.ChangedAfter(l.lastScanned)
	dials := dialQueries(r.removedAddrs(l.now), l.inStartupWindow(), !l.now.Before(r.closedDue))
	r.isWatching = len(dials) > 0
	l.queries = append(udpQueries(l.families), dials...)
	queries := make([]conntrack.Query, len(l.queries))
	for i := range l.queries {
		each := l.onDial
		if l.queries[i].isOfUDP() {
			each = l.onFlow
		}
		queries[i] = conntrack.Query{Filter: l.queries[i].filter, Each: each}
	}
	return queries
}

func (l *scan) onFlow(e *conntrack.Entry) bool {
	reason, err := l.classify(e)
	if err != nil {
		l.uncertainFlows = err
	}
	if reason.IsStale() {
		found := *e
		l.staleFlows = append(l.staleFlows, &found)
	}
	return true
}

func (l *scan) onDial(e *conntrack.Entry) bool {
	if e.Protocol == model.UDP {
		return true
	}
	reason, err := l.classify(e)
	if err != nil {
		l.uncertainDials = err
	}
	if reason.IsStale() {
		found := *e
		l.staleDials = append(l.staleDials, &found)
	}
	return len(l.staleDials) < maxDeletes
}

// newClassifier is what entries are judged by now.
func (r *Reconciler) newClassifier(isLocal selection.IsLocal) classifier {
	return classifier{now: r.now(), owners: r.owners.Snapshot(), reader: r.owners, isLocal: isLocal, lastScanned: r.lastScanned}
}

// deleteStaleFlows deletes the flows of UDP that a look found, unless their endpoint is back.
func (r *Reconciler) deleteStaleFlows(ctx context.Context, l *scan, result conntrack.Result, done *CleanupResult) error {
	err := errors.Join(result.Err, l.uncertainFlows)
	if err != nil {
		err = fmt.Errorf("listing the UDP flows in conntrack: %w", err)
	}
	began, ended := time.Now(), map[model.Family]int{}
	isStale := func(e *conntrack.Entry) (bool, error) {
		w := r.newClassifier(l.isLocal)
		reason, err := w.classify(e)
		return reason.IsStale(), err
	}
	err = errors.Join(err, deleteAll(ctx, r.dumps, l.staleFlows, isStale, func(e *conntrack.Entry) { ended[e.Family()]++ }))
	for _, family := range l.families {
		pass := PassResult{Deleted: ended[family]}
		if err == nil {
			pass.Duration = result.Took + time.Since(began)
		}
		done.Flows[family] = pass
	}
	if err == nil {
		r.lastScanned = l.owners.Number
	}
	return err
}

// dueForDeletion returns those of the entries that a look found which end now. A dial that was found for the first time does not,
// and is remembered; but for those to a node that is known not to answer.
func (r *Reconciler) dueForDeletion(l *scan, done *CleanupResult) (unreplied, closed []*conntrack.Entry) {
	ended := r.now()
	first := make(map[identity]time.Time, len(l.staleDials))
	for _, e := range l.staleDials {
		if e.Status&conntrack.SeenReply != 0 {
			closed = append(closed, e)
			continue
		}
		if owner := l.owners.Lookup(e.Protocol, e.OrigDst()); owner != nil && owner.KeepsEstablished(e.ReplySrc()) {
			unreplied = append(unreplied, e)
			continue
		}
		this := identity{e.Protocol, e.Original, e.Reply, e.ID}
		at, isKnown := r.firstUnreplied[this]
		switch {
		case !isKnown:
			at = ended
			fallthrough
		case l.now.Sub(at) < confirmInterval:
			done.Pending++
		default:
			unreplied = append(unreplied, e)
		}
		first[this] = at
	}
	r.firstUnreplied = first
	return unreplied, closed
}

// removedAddrs returns the addresses of endpoints that left.
func (r *Reconciler) removedAddrs(now time.Time) []netip.Addr {
	var addrs []netip.Addr
	known := map[netip.Addr]bool{}
	r.owners.RangeRemoved(now.Add(-StaleDialWindow), func(endpoint serviceindex.Endpoint) bool {
		if addr := endpoint.Addr.Addr(); endpoint.Protocol != model.UDP && !known[addr] {
			known[addr] = true
			addrs = append(addrs, addr)
		}
		return true
	})
	return addrs
}

// deleteUnreplied deletes dials that are still unanswered, and whose endpoint may still not answer.
func (r *Reconciler) deleteUnreplied(ctx context.Context, dials []*conntrack.Entry, isLocal selection.IsLocal, done *CleanupResult) error {
	w := r.newClassifier(isLocal) // endpoints may have come back since the table was read
	var uncertain error
	dials = slices.DeleteFunc(dials, func(e *conntrack.Entry) bool {
		reason, err := w.classify(e)
		if err != nil {
			uncertain = err
		}
		return !reason.IsStale()
	})
	if len(dials) == 0 {
		return uncertain
	}
	count := func(e *conntrack.Entry) { done.Unreplied[e.Protocol]++ }
	deleted, err := r.dumps.DeleteUnreplied(dials)
	for _, e := range deleted {
		count(e)
	}
	if errors.Is(err, conntrack.ErrUntested) {
		err = deleteAll(ctx, r.dumps, dials, r.isStillStale(isLocal), count)
	}
	return errors.Join(uncertain, err)
}

// isStillStale returns the judgement of an entry as it is now.
func (r *Reconciler) isStillStale(isLocal selection.IsLocal) func(*conntrack.Entry) (bool, error) {
	return func(e *conntrack.Entry) (bool, error) {
		now, isThere, err := r.dumps.Get(e)
		if err != nil || !isThere {
			return false, err
		}
		w := r.newClassifier(isLocal)
		reason, err := w.classify(&now)
		return reason.IsStale(), err
	}
}
