//go:build linux

package probe

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
)

// mostRead is how many connections without an answer a look reads: those of a flood are not needed one by one.
const mostRead = 8192

// Look is what one look found.
type Look struct {
	Took       time.Duration
	Unanswered int // connections to Services, of those that it read
	CutOff     bool
	flows      []reachability.Flow
}

// look lists the connections that were translated and have no answer.
func (p *Prober) look(ctx context.Context) (Look, error) {
	var found Look
	snapshot := p.owners.Snapshot()
	if snapshot == nil {
		return found, nil
	}
	read := 0
	unanswered := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}
	took, err := p.table.Dump(ctx, unanswered, func(e *conntrack.Entry) bool {
		read++
		if owners.IsOurs(e) {
			if frontend := snapshot.Owner(e.Protocol, e.Dialled()); frontend != nil {
				if node, known := frontend.NodeOf(e.Answerer()); known {
					found.Unanswered++
					found.flows = append(found.flows, reachability.Flow{
						ID: e.ID, Client: e.Client().Addr(), Endpoint: e.Answerer(), Node: node,
					})
				}
			}
		}
		return read < mostRead
	})
	found.Took = took
	if found.CutOff = errors.Is(err, conntrack.ErrCutOff) || errors.Is(err, conntrack.ErrInterrupted); found.CutOff {
		err = nil
	}
	return found, err
}

// answered lists the connections with an answer to endpoints on some nodes, at once: a verdict waits for it.
func (p *Prober) answered(ctx context.Context, nodes []string) (map[string][]uint32, error) {
	ids, wanted := map[string][]uint32{}, map[string]bool{}
	for _, node := range nodes {
		wanted[node] = true
	}
	snapshot := p.owners.Snapshot()
	if snapshot == nil {
		return ids, nil
	}
	status := conntrack.DestinationNAT | conntrack.SeenReply
	_, err := p.atOnce.Dump(ctx, conntrack.Filter{Status: status, Mask: status}, func(e *conntrack.Entry) bool {
		if frontend := snapshot.Owner(e.Protocol, e.Dialled()); frontend != nil && owners.IsOurs(e) {
			if node, known := frontend.NodeOf(e.Answerer()); known && wanted[node] {
				ids[node] = append(ids[node], e.ID)
			}
		}
		return true
	})
	return ids, err
}

// isTranslated reports whether a dial to an address would go to a Service instead: a Service whose external IP equals a
// node's address must not answer for the node.
func (p *Prober) isTranslated(addr netip.AddrPort) bool {
	snapshot := p.owners.Snapshot()
	return snapshot != nil && snapshot.HasOwnAddress(addr)
}
