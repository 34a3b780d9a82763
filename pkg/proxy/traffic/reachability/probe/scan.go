//go:build linux

package probe

import (
	"context"
	"errors"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

// maxEntries is how many connections without a reply a scan reads: those of a flood are not needed one by one.
const maxEntries = 8192

// Scan is what one scan found.
type Scan struct {
	Unreplied int // connections to Services, of those that it read
	flows     map[model.Family][]reachability.Flow
	notFound  map[netip.Addr]bool // addresses on a link that the kernel does not find
	isRead    bool                // the connections were listed
}

// scan lists the connections that were translated and have no reply. If there are any, it lists whom the link does not
// find, too.
func (p *Prober) scan(ctx context.Context) (Scan, error) {
	found := Scan{flows: map[model.Family][]reachability.Flow{}}
	snapshot := p.Index.Snapshot()
	if snapshot == nil {
		return found, nil
	}
	read := 0
	unreplied := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}
	_, err := p.Table.Dump(ctx, unreplied, func(e *conntrack.Entry) bool {
		read++
		if flow, isOurs := flowOf(e, snapshot); isOurs {
			found.Unreplied++
			family := model.FamilyOf(flow.Endpoint.Addr())
			found.flows[family] = append(found.flows[family], flow)
		}
		return read < maxEntries
	})
	if errors.Is(err, conntrack.ErrTruncated) || errors.Is(err, conntrack.ErrInterrupted) {
		err = nil
	}
	if found.isRead = err == nil; found.isRead && found.Unreplied > 0 {
		found.notFound, err = p.notFound()
	}
	return found, err
}

// flowOf returns a connection to an endpoint that our tables translated.
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

// replied lists the connections to endpoints on some nodes that the endpoint has accepted, at once: a decision waits for it.
// A node's endpoints are those of an earlier snapshot, so that they are the same in two lists that are compared: a connection
// to an endpoint that was not in its slice for a while would look new. Next are those by the endpoints of now.
func (p *Prober) replied(
	ctx context.Context, before map[string]*serviceindex.Snapshot, now *serviceindex.Snapshot,
) (flows, next []reachability.Flow, err error) {
	status := conntrack.DestinationNAT | conntrack.SeenReply
	snapshots := map[*serviceindex.Snapshot]bool{now: true}
	for _, snapshot := range before {
		snapshots[snapshot] = true
	}
	_, err = p.Unthrottled.Dump(ctx, conntrack.Filter{Status: status, Mask: status}, func(e *conntrack.Entry) bool {
		if e.Protocol == model.TCP && e.Status&conntrack.Assured == 0 {
			return true // a kernel without pods resets
		}
		for snapshot := range snapshots {
			flow, isOurs := flowOf(e, snapshot)
			if isOurs && before[flow.Node] == snapshot {
				flows = append(flows, flow)
			}
			if isOurs && snapshot == now && before[flow.Node] != nil {
				next = append(next, flow)
			}
		}
		return true
	})
	return flows, next, err
}
