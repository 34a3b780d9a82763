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
	// confirmInterval is the time between the two scans that must find a connection unreplied. Most replies that are in
	// flight at the first scan arrive before the second. The endpoint may well be alive: its readiness probe fails, or a
	// selector was changed, while the pod continues to serve.
	confirmInterval = 400 * time.Millisecond
	// closedCooldownFactor is the cooldown after reading all replied connections, as a multiple of the time that reading
	// them took. With many connections this is the longest scan, and it must not delay others.
	closedCooldownFactor = 49
	// maxDeletes limits the stale connections that a scan collects and deletes. The next scan finds more.
	maxDeletes = 8192
)

// CleanupResult is the result of a scan.
type CleanupResult struct {
	// Flows are the results for UDP, by scanned family.
	Flows map[model.Family]PassResult
	// Unreplied counts deleted TCP and SCTP entries without a reply, Closed those of closed connections.
	Unreplied, Closed map[model.Protocol]int
	// Pending is the number of unreplied connections that await confirmation by another scan.
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
	// staleFlows are the stale UDP flows, staleConnections the stale TCP and SCTP connections.
	staleFlows, staleConnections []*conntrack.Entry
	// flowErr and connectionErr are the errors because of which some of them could not be classified.
	flowErr, connectionErr error
}

// CleanOnce scans once. After an error some stale connections may remain; the next scan finds them.
func (r *Reconciler) CleanOnce(ctx context.Context) (CleanupResult, error) {
	cleanup := CleanupResult{Flows: map[model.Family]PassResult{}, Unreplied: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
	s := &scan{classifier: classifier{isLocal: memoizeIsLocal(r.isLocal)}}
	results, err := r.dumps.Query(ctx, func() []conntrack.Query { return r.newQueries(s) }) // built after the wait
	if err != nil {
		return cleanup, fmt.Errorf("list connections in conntrack: %w", err)
	}
	var failures []error
	for i, result := range results {
		query := &s.queries[i]
		if query.scansReplied {
			r.closedDue = s.now.Add(max(longRescan, closedCooldownFactor*result.Took))
		}
		switch {
		case query.isUDP():
			failures = append(failures, r.deleteStaleFlows(ctx, s, result, &cleanup))
		case errors.Is(result.Err, conntrack.ErrTruncated):
			cleanup.Truncated = true
		case result.Err != nil:
			failures = append(failures, fmt.Errorf("list conntrack entries: %w", result.Err))
		}
	}
	unreplied, closed := r.dueForDeletion(s, &cleanup)
	failures = append(failures, s.connectionErr, r.deleteUnreplied(ctx, unreplied, s.isLocal, &cleanup),
		deleteAll(ctx, r.dumps, closed, r.isStillStale(s.isLocal), func(e *conntrack.Entry) { cleanup.Closed[e.Protocol]++ }))
	return cleanup, errors.Join(failures...)
}

// newQueries returns the queries of a scan. UDP flows come first, because their clients wait.
func (r *Reconciler) newQueries(s *scan) []conntrack.Query {
	if s.classifier = r.newClassifier(s.isLocal); s.snapshot == nil {
		return nil
	}
	s.families = s.snapshot.ChangedAfter(s.lastScanned)
	connections := connectionQueries(r.removedAddrs(s.now), s.inStartupWindow(), !s.now.Before(r.closedDue))
	r.scansConnections = len(connections) > 0
	s.queries = append(udpQueries(s.families), connections...)
	queries := make([]conntrack.Query, len(s.queries))
	for i := range s.queries {
		each := s.onConnection
		if s.queries[i].isUDP() {
			each = s.onFlow
		}
		queries[i] = conntrack.Query{Filter: s.queries[i].filter, Each: each}
	}
	return queries
}

func (s *scan) onFlow(e *conntrack.Entry) bool {
	class, err := s.classify(e)
	if err != nil {
		s.flowErr = err
	}
	if class.IsStale() {
		found := *e
		s.staleFlows = append(s.staleFlows, &found)
	}
	return true
}

func (s *scan) onConnection(e *conntrack.Entry) bool {
	if e.Protocol == model.UDP {
		return true
	}
	class, err := s.classify(e)
	if err != nil {
		s.connectionErr = err
	}
	if class.IsStale() {
		found := *e
		s.staleConnections = append(s.staleConnections, &found)
	}
	return len(s.staleConnections) < maxDeletes
}

// newClassifier returns a classifier with the current state.
func (r *Reconciler) newClassifier(isLocal selection.IsLocal) classifier {
	return classifier{now: r.now(), snapshot: r.index.Snapshot(), index: r.index, isLocal: isLocal, lastScanned: r.lastScanned}
}

// deleteStaleFlows deletes the UDP flows that a scan found, unless their endpoint was added again.
func (r *Reconciler) deleteStaleFlows(ctx context.Context, s *scan, result conntrack.Result, cleanup *CleanupResult) error {
	err := errors.Join(result.Err, s.flowErr)
	if err != nil {
		err = fmt.Errorf("list UDP flows in conntrack: %w", err)
	}
	began, deleted := time.Now(), map[model.Family]int{}
	isStale := func(e *conntrack.Entry) (bool, error) {
		c := r.newClassifier(s.isLocal)
		class, err := c.classify(e)
		return class.IsStale(), err
	}
	err = errors.Join(err, deleteAll(ctx, r.dumps, s.staleFlows, isStale, func(e *conntrack.Entry) { deleted[e.Family()]++ }))
	for _, family := range s.families {
		pass := PassResult{Deleted: deleted[family]}
		if err == nil {
			pass.Duration = result.Took + time.Since(began)
		}
		cleanup.Flows[family] = pass
	}
	if err == nil {
		r.lastScanned = s.snapshot.Number
	}
	return err
}

// dueForDeletion returns the entries of a scan that are deleted now. An unreplied connection that was first found less
// than confirmInterval ago is recorded and not returned, unless it leads to a node that is known not to reply.
func (r *Reconciler) dueForDeletion(s *scan, cleanup *CleanupResult) (unreplied, closed []*conntrack.Entry) {
	now := r.now()
	first := make(map[identity]time.Time, len(s.staleConnections))
	for _, e := range s.staleConnections {
		if e.Status&conntrack.SeenReply != 0 {
			closed = append(closed, e)
			continue
		}
		if frontend := s.snapshot.Lookup(e.Protocol, e.OrigDst()); frontend != nil && frontend.KeepsEstablished(e.ReplySrc()) {
			unreplied = append(unreplied, e)
			continue
		}
		id := identity{e.Protocol, e.Original, e.Reply, e.ID}
		firstFound, isKnown := r.firstUnreplied[id]
		switch {
		case !isKnown:
			firstFound = now
			fallthrough
		case s.now.Sub(firstFound) < confirmInterval:
			cleanup.Pending++
		default:
			unreplied = append(unreplied, e)
		}
		first[id] = firstFound
	}
	r.firstUnreplied = first
	return unreplied, closed
}

// removedAddrs returns the addresses of removed endpoints.
func (r *Reconciler) removedAddrs(now time.Time) []netip.Addr {
	var addrs []netip.Addr
	known := map[netip.Addr]bool{}
	r.index.RangeRemoved(now.Add(-StaleEntryWindow), func(endpoint serviceindex.Endpoint) bool {
		if addr := endpoint.Addr.Addr(); endpoint.Protocol != model.UDP && !known[addr] {
			known[addr] = true
			addrs = append(addrs, addr)
		}
		return true
	})
	return addrs
}

// deleteUnreplied deletes connections that are still unreplied, unless their endpoint may serve them again.
func (r *Reconciler) deleteUnreplied(ctx context.Context, entries []*conntrack.Entry, isLocal selection.IsLocal,
	cleanup *CleanupResult) error {
	c := r.newClassifier(isLocal) // endpoints may have been added again since the dump
	var uncertain error
	entries = slices.DeleteFunc(entries, func(e *conntrack.Entry) bool {
		class, err := c.classify(e)
		if err != nil {
			uncertain = err
		}
		return !class.IsStale()
	})
	if len(entries) == 0 {
		return uncertain
	}
	count := func(e *conntrack.Entry) { cleanup.Unreplied[e.Protocol]++ }
	deleted, err := r.dumps.DeleteUnreplied(entries)
	for _, e := range deleted {
		count(e)
	}
	if errors.Is(err, conntrack.ErrNoConditionalDelete) {
		err = deleteAll(ctx, r.dumps, entries, r.isStillStale(isLocal), count)
	}
	return errors.Join(uncertain, err)
}

// isStillStale returns a function that reads an entry again and reports whether it is stale.
func (r *Reconciler) isStillStale(isLocal selection.IsLocal) func(*conntrack.Entry) (bool, error) {
	return func(e *conntrack.Entry) (bool, error) {
		current, exists, err := r.dumps.Get(e)
		if err != nil || !exists {
			return false, err
		}
		c := r.newClassifier(isLocal)
		class, err := c.classify(&current)
		return class.IsStale(), err
	}
}
