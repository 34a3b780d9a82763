//go:build linux

package servicehealth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Failure says that a Service's health checks are not answered at an address or in a family.
type Failure struct {
	Service model.ObjectName
	Err     error
}

// Error names the Service.
func (f *Failure) Error() string {
	return fmt.Sprintf("answering health checks of Service %s: %v", f.Service, f.Err)
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// FindingsOf returns what an error of Sync says about Services.
func FindingsOf(err error) []model.Finding {
	joined, _ := err.(interface{ Unwrap() []error })
	if joined == nil {
		return nil
	}
	var list []model.Finding
	for _, err := range joined.Unwrap() {
		if failure, ok := errors.AsType[*Failure](err); ok {
			reason := "Load balancers treat this node as one without endpoints of this Service; it tries again: " + failure.Err.Error()
			list = append(list, model.Finding{Code: model.HealthCheckNotServed, Reason: reason, Local: true}.Of("Service", failure.Service))
		}
	}
	return list
}

// Servers are the HTTP servers of all health checks: one for each Service, family and address. They may be used by
// several goroutines.
type Servers struct {
	log     *slog.Logger
	healthy func() bool

	mutex    sync.Mutex
	servers  map[netip.AddrPort]*server
	isClosed bool
	running  sync.WaitGroup
}

// New returns Servers without any server yet. Healthy says whether the proxy does its work; it is asked for every
// answer, by many goroutines.
func New(log *slog.Logger, healthy func() bool) *Servers {
	return &Servers{log: log, healthy: healthy, servers: map[netip.AddrPort]*server{}}
}

// Sync makes the servers answer these checks at these addresses, and no others. A server that stays goes on listening
// and keeps its connections; a check without an address in its family has no server there.
//
// The error joins a Failure for each Service that cannot be answered for at an address: something else listens there,
// or another Service has the port. All others are served meanwhile, and the next Sync tries again.
//
// The servers run until a later Sync or Close ends them, also after ctx has ended. They listen in the network
// namespace of the calling thread.
func (s *Servers) Sync(ctx context.Context, checks map[model.ObjectName]selection.HealthCheck, addresses map[model.Family]Addresses) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.isClosed {
		return fmt.Errorf("answering health checks: %w", net.ErrClosed)
	}
	assigned, failures := assign(checks, addresses)
	s.endAll(func(addr netip.AddrPort) bool {
		_, stays := assigned[addr]
		return !stays
	})
	for _, addr := range slices.SortedFunc(maps.Keys(assigned), netip.AddrPort.Compare) {
		wanted := assigned[addr]
		if running := s.servers[addr]; running != nil && !running.hasEnded() {
			running.answer.Store(&wanted)
			continue
		}
		started, err := s.start(ctx, addr, wanted)
		if err != nil {
			delete(s.servers, addr)
			failures = append(failures, &Failure{Service: wanted.service, Err: err})
			continue
		}
		s.servers[addr] = started
	}
	return errors.Join(failures...)
}

// Close ends all servers for good, and returns when the answers that had begun are finished.
func (s *Servers) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.isClosed = true
	s.endAll(func(netip.AddrPort) bool { return true })
	s.running.Wait()
}

// endAll ends the servers of the chosen addresses, and returns when all of them are free to be bound again. Answers
// that had begun may finish meanwhile.
func (s *Servers) endAll(chosen func(netip.AddrPort) bool) {
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
