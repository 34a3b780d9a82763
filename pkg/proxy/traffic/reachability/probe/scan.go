//go:build linux

package probe

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

// maxEntries limits the unreplied connections that a scan reads: more would not change its result. maxRechecked limits
// those to one node that it reads again.
const maxEntries, maxRechecked = 8192, 4

// Scan is the result of one scan.
type Scan struct {
	Unreplied        int // connections to Services among the entries read
	unrepliedEntries map[target][]conntrack.Entry
	unresolved       map[netip.Addr]bool // addresses that neighbour discovery does not find
	isListed         bool                // reports whether the connections were listed
}

// target is the node and the family of connections.
type target struct {
	node   string
	family model.Family
}

// scan finds translated connections that stay unreplied for MinAge. If it finds any without a reply, it also lists the
// addresses that neighbour discovery does not find.
func (p *Prober) scan(ctx context.Context) (Scan, error) {
	result := Scan{unrepliedEntries: map[target][]conntrack.Entry{}}
	snapshot := p.Index.Snapshot()
	if snapshot == nil {
		return result, nil
	}
	read := 0
	unreplied := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}
	_, err := p.Table.Dump(ctx, unreplied, func(e *conntrack.Entry) bool {
		read++
		if flow, isOwn := flowOf(e, snapshot); isOwn {
			result.Unreplied++
			to := target{flow.Node, model.FamilyOf(flow.Endpoint.Addr())}
			if entries := result.unrepliedEntries[to]; len(entries) < maxRechecked {
				result.unrepliedEntries[to] = append(entries, *e)
			}
		}
		return read < maxEntries
	})
	if errors.Is(err, conntrack.ErrTruncated) || errors.Is(err, conntrack.ErrInterrupted) {
		err = nil
	}
	if result.isListed = err == nil; result.isListed && result.Unreplied > 0 {
		err = p.recheck(ctx, &result)
	}
	return result, err
}

// recheck waits for MinAge, and reads the entries again one by one: the next list may have to wait for two seconds.
func (p *Prober) recheck(ctx context.Context, found *Scan) (err error) {
	select {
	case <-ctx.Done():
	case <-time.After(reachability.MinAge):
	}
	for to, entries := range found.unrepliedEntries {
		found.unrepliedEntries[to] = slices.DeleteFunc(entries, func(e conntrack.Entry) bool {
			current, exists, readErr := p.Table.Get(&e)
			err = cmp.Or(err, readErr)
			return !exists || current.Status&conntrack.SeenReply != 0
		})
	}
	unresolved, readErr := p.unresolvedNeighbours()
	found.unresolved = unresolved
	return cmp.Or(err, readErr)
}

// flowOf returns an entry as a Flow. It reports false unless our tables translated it to a current endpoint.
func flowOf(e *conntrack.Entry, snapshot *serviceindex.Snapshot) (reachability.Flow, bool) {
	if !serviceindex.IsOwnNAT(e) {
		return reachability.Flow{}, false
	}
	frontend := snapshot.Lookup(e.Protocol, e.OrigDst())
	if frontend == nil {
		return reachability.Flow{}, false
	}
	node, known := frontend.NodeOf(e.ReplySrc())
	return reachability.Flow{ID: e.ID, Client: e.OrigSrc().Addr(), Endpoint: e.ReplySrc(), Node: node}, known
}

// replied lists the connections to endpoints on some nodes that the endpoint has accepted. It is not throttled, because
// a decision waits for the list. flows uses the endpoints of an earlier snapshot per node, so that two lists to be
// compared use the same endpoints: a connection to an endpoint that was missing in its EndpointSlice for a while would
// look new. nextFlows uses the current endpoints.
func (p *Prober) replied(
	ctx context.Context, previous map[string]*serviceindex.Snapshot, current *serviceindex.Snapshot,
) (flows, nextFlows []reachability.Flow, err error) {
	status := conntrack.DestinationNAT | conntrack.SeenReply
	snapshots := map[*serviceindex.Snapshot]bool{current: true}
	for _, snapshot := range previous {
		snapshots[snapshot] = true
	}
	_, err = p.Unthrottled.Dump(ctx, conntrack.Filter{Status: status, Mask: status}, func(e *conntrack.Entry) bool {
		if e.Protocol == model.TCP && e.Status&conntrack.Assured == 0 {
			return true // perhaps only a reset, from a kernel whose pods do not run
		}
		for snapshot := range snapshots {
			flow, isOwn := flowOf(e, snapshot)
			if isOwn && previous[flow.Node] == snapshot {
				flows = append(flows, flow)
			}
			if isOwn && snapshot == current && previous[flow.Node] != nil {
				nextFlows = append(nextFlows, flow)
			}
		}
		return true
	})
	return flows, nextFlows, err
}
