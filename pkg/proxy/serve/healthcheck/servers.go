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

// Servers are the HTTP servers of all health checks: one for each Service, family and address. One goroutine uses them.
type Servers struct {
	log     *slog.Logger
	healthy func() bool

	servers map[netip.AddrPort]*server
	running sync.WaitGroup
}

// New returns Servers without any server yet. Healthy says whether the proxy does its work; it is asked for every
// answer, by many goroutines.
func New(log *slog.Logger, healthy func() bool) *Servers {
	return &Servers{log: log, healthy: healthy, servers: map[netip.AddrPort]*server{}}
}

// Sync makes the servers answer these checks where node ports are served, and no others. A server that stays goes on
// listening and keeps its connections; a check without an address in its family has no server there.
//
// It returns a finding for each Service that cannot be answered for at an address: something else listens there, or
// another Service has the port. All others are served meanwhile, and the next Sync tries again.
//
// The servers run until a later Sync or Close ends them, also after ctx has ended. They listen in the network
// namespace of the calling thread.
func (s *Servers) Sync(
	ctx context.Context, checks map[model.ObjectName]selection.HealthCheck, scope *selection.Scope,
) []model.Finding {
	assigned, failed := claimPorts(checks, scope)
	s.stopAll(func(addr netip.AddrPort) bool {
		_, stays := assigned[addr]
		return !stays
	})
	for _, addr := range slices.SortedFunc(maps.Keys(assigned), netip.AddrPort.Compare) {
		wanted := assigned[addr]
		if running := s.servers[addr]; running != nil && !running.isStopped() {
			running.response.Store(&wanted)
			continue
		}
		started, err := s.start(ctx, addr, wanted)
		if err != nil {
			delete(s.servers, addr)
			failed = append(failed, notServed(wanted.service, err))
			continue
		}
		s.servers[addr] = started
	}
	return failed
}

// Close ends all servers for good, and returns when the answers that had begun are finished.
func (s *Servers) Close() {
	s.stopAll(func(netip.AddrPort) bool { return true })
	s.running.Wait()
}

// stopAll ends the servers of the chosen addresses, and returns when all of them are free to be bound again. Answers
// that had begun may finish meanwhile.
func (s *Servers) stopAll(chosen func(netip.AddrPort) bool) {
	var ending []*server
	for addr, running := range s.servers {
		if chosen(addr) {
			running.end()
			ending = append(ending, running)
			delete(s.servers, addr)
		}
	}
	for _, one := range ending {
		<-one.listener.closed
	}
}
