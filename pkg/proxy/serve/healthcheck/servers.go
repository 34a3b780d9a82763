//go:build linux

package healthcheck

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Servers are the HTTP servers of all health checks: one for each Service, family and address. They are not safe for
// concurrent use.
type Servers struct {
	log     *slog.Logger
	healthy func() bool

	servers map[netip.AddrPort]*server
	running sync.WaitGroup
}

// New returns Servers without any server. healthy reports whether the proxy is healthy; it is called for every
// response, from many goroutines.
func New(log *slog.Logger, healthy func() bool) *Servers {
	return &Servers{log: log, healthy: healthy, servers: map[netip.AddrPort]*server{}}
}

// Sync serves these checks on the addresses of node ports, and no others. Servers that are still needed keep listening
// and keep their connections. A check without an address in its family has no server in that family.
//
// Sync returns a finding for each Service whose check cannot be served at an address, because another program listens
// there or another Service has the port. All other checks are served, and the next Sync retries the failed ones.
//
// The servers run until a later Sync or Close ends them, even after ctx has ended. They listen in the network namespace
// of the calling thread.
func (s *Servers) Sync(
	ctx context.Context, checks map[model.ObjectName]selection.HealthCheck, scope *selection.Scope,
) []model.Finding {
	assigned, findings := claimPorts(checks, scope)
	s.stopAll(func(addr netip.AddrPort) bool {
		_, stays := assigned[addr]
		return !stays
	})
	for _, addr := range slices.SortedFunc(maps.Keys(assigned), netip.AddrPort.Compare) {
		desired := assigned[addr]
		if running := s.servers[addr]; running != nil && !running.isStopped() {
			running.response.Store(&desired)
			continue
		}
		started, err := s.start(ctx, addr, desired)
		if err != nil {
			delete(s.servers, addr)
			findings = append(findings, notServedFinding(desired.service, err))
			continue
		}
		s.servers[addr] = started
	}
	return findings
}

// Close ends all servers for good, and returns when the responses in progress are finished.
func (s *Servers) Close() {
	s.stopAll(func(netip.AddrPort) bool { return true })
	s.running.Wait()
}

// stopAll ends the servers of the chosen addresses, and returns when all of these addresses can be bound again.
// Responses in progress may still be running then.
func (s *Servers) stopAll(chosen func(netip.AddrPort) bool) {
	var ending []*server
	for addr, running := range s.servers {
		if chosen(addr) {
			running.end()
			ending = append(ending, running)
			delete(s.servers, addr)
		}
	}
	for _, stopped := range ending {
		<-stopped.listener.closed
	}
}
