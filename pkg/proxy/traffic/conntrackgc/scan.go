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
	// confirmInterval is the time between the two scans that must find a dial unreplied. Most replies that are in flight
	// at the first scan arrive before the second. The endpoint may well be alive: its readiness probe fails, or a selector
	// was changed, while the pod continues to serve.
	confirmInterval = 400 * time.Millisecond
	// closedCooldownFactor is the cooldown after reading all replied connections, as a multiple of the time that reading
	// them took. With many connections this is the longest scan, and it must not delay others.
	closedCooldownFactor = 49
	// maxDeletes limits the stale dials that a scan collects. It deletes them, so that the next scan finds others.
	maxDeletes = 8192
)

// CleanupResult is the result of a scan.
type CleanupResult struct {
	// Flows are the results for UDP, by scanned family.
	Flows map[model.Family]PassResult
	// Unreplied counts deleted TCP and SCTP entries without a reply, Closed those of closed connections.
	Unreplied, Closed map[model.Protocol]int
	// Pending is the number of dials that await confirmation by another scan.
	Pending int
	// Truncated is set if there were more stale connections than one scan deletes. The next scan continues.
	Truncated bool
}

// PassResult is the result of one scan of a family's UDP flows.
type PassResult struct {
	Deleted  int           // number of deleted flows
	Duration time.Duration // zero if the scan failed
}

// scan holds the queries and findings of one scan.
type scan struct {
	classifier                // its isLocal queries each address once
	families   []model.Family // families of the UDP flows that are scanned
	queries    []query
	// staleFlows are the stale UDP flows, staleDials the stale TCP and SCTP connections.
	staleFlows, staleDials []*conntrack.Entry
	// uncertainFlows and uncertainDials are the errors because of which some flows or dials could not be classified.
	uncertainFlows, uncertainDials error
}

// CleanOnce scans once. After an error some stale connections may remain; the next scan finds them.
func (r *Reconciler) CleanOnce(ctx context.Context) (CleanupResult, error) {
	done := CleanupResult{Flows: map[model.Family]PassResult{}, Unreplied: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
	l := &scan{classifier: classifier{isLocal: memoizeIsLocal(r.isLocal)}}
	results, err := r.dumps.Query(ctx, func() []conntrack.Query { return r.newQueries(l) }) // built after the wait
	if err != nil {
		return done, fmt.Errorf("list connections in conntrack: %w", err)
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
			failures = append(failures, fmt.Errorf("list dials in conntrack: %w", result.Err))
		}
	}
	unreplied, closed := r.dueForDeletion(l, &done)
	failures = append(failures, l.uncertainDials, r.deleteUnreplied(ctx, unreplied, l.isLocal, &done),
		deleteAll(ctx, r.dumps, closed, r.isStillStale(l.isLocal), func(e *conntrack.Entry) { done.Closed[e.Protocol]++ }))
	return done, errors.Join(failures...)
}

// newQueries returns the queries of a scan. UDP flows come first, because their clients wait.
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

// newClassifier returns a classifier with the current state.
func (r *Reconciler) newClassifier(isLocal selection.IsLocal) classifier {
	return classifier{now: r.now(), owners: r.owners.Snapshot(), reader: r.owners, isLocal: isLocal, lastScanned: r.lastScanned}
}

// deleteStaleFlows deletes the UDP flows that a scan found, unless their endpoint was added again.
func (r *Reconciler) deleteStaleFlows(ctx context.Context, l *scan, result conntrack.Result, done *CleanupResult) error {
	err := errors.Join(result.Err, l.uncertainFlows)
	if err != nil {
		err = fmt.Errorf("list UDP flows in conntrack: %w", err)
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

// dueForDeletion returns the entries of a scan that are deleted now. A dial that was first found less than
// confirmInterval ago is recorded and not returned, unless it leads to a node that is known not to reply.
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

// removedAddrs returns the addresses of removed endpoints.
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

// deleteUnreplied deletes dials that are still unreplied, if their endpoint may still not serve them.
func (r *Reconciler) deleteUnreplied(ctx context.Context, dials []*conntrack.Entry, isLocal selection.IsLocal, done *CleanupResult) error {
	w := r.newClassifier(isLocal) // endpoints may have been added again since the dump
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

// isStillStale returns a function that reads an entry again and reports whether it is stale.
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
