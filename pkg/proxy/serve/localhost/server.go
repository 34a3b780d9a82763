//go:build linux

package localhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const (
	// retryAfter is the delay before another attempt to listen on a port: the process that occupies it may end.
	retryAfter = 5 * time.Second
	// acceptPause is the delay after accept(2) failed, usually for lack of file descriptors.
	acceptPause = 100 * time.Millisecond
)

// Observer receives the events of a Server. Several goroutines call its methods.
type Observer interface {
	// Listening is called with the number of node ports of a family on which the server currently listens.
	Listening(family model.Family, ports int)
	// ListenFailed is called if the server could not listen on a node port.
	ListenFailed(family model.Family)
	// Connection is called with the outcome of a connection attempt.
	Connection(family model.Family, outcome Outcome)
	// Found is called with a finding for each node port on which the server cannot listen.
	Found(findings []model.Finding)
}

// Server serves the TCP node ports of all Services. It is a handler of the proxy's decisions.
type Server struct {
	addrs    map[model.Family]netip.Addr
	observer Observer
	limiter  *connLimiter
	listen   func(context.Context, netip.AddrPort) (net.Listener, error)
	dial     func(context.Context, netip.AddrPort) (*net.TCPConn, error)

	changed notify.Signal
	mutex   sync.Mutex
	desired map[model.ObjectName]map[nodePort]target
	dirty   map[model.ObjectName]bool

	// Only Run's goroutine uses ports.
	ports map[nodePort]*port

	running sync.WaitGroup
}

// port is a node port that a Service owns.
type port struct {
	nodePort
	service   model.ObjectName
	picker    picker
	isDesired bool         // the port has endpoints, so the server should listen on it
	listener  net.Listener // nil while the server does not listen on the port
	// end cancels ctx, and so ends the connections.
	ctx context.Context //nolint:containedctx // it lasts as long as the port
	end context.CancelFunc
}

// NewServer returns a server for loopback addresses, at most one per family. It listens only while Run runs.
func NewServer(addrs map[model.Family]netip.Addr, observer Observer) *Server {
	return &Server{
		addrs: addrs, observer: observer, limiter: newConnLimiter(processLimit()), listen: listen, dial: dial,
		changed: notify.NewSignal(), desired: map[model.ObjectName]map[nodePort]target{}, dirty: map[model.ObjectName]bool{},
		ports: map[nodePort]*port{},
	}
}

// listen binds an address for its own family only, and to the loopback interface. Otherwise, if
// net.ipv4.conf.*.route_localnet is 1, as kube-proxy's iptables mode leaves it, neighbours could reach 127.0.0.1.
func listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	config := net.ListenConfig{Control: func(_, _ string, connection syscall.RawConn) error {
		var bindErr error
		err := connection.Control(func(socket uintptr) { bindErr = unix.BindToDevice(int(socket), "lo") })
		return errors.Join(err, bindErr)
	}}
	return config.Listen(ctx, network, addr.String())
}

// MaxConnections returns the maximum number of concurrent connections.
func (s *Server) MaxConnections() int { return s.limiter.limit }

// Derive returns the node ports of a Service; nil if it has none.
func (s *Server) Derive(decisions []selection.Decision) any {
	if targets := targetsOf(decisions, s.addrs); targets != nil {
		return targets
	}
	return nil
}

// OnApplied replaces the node ports of a Service. Run applies the change; OnApplied does not wait for it.
func (s *Server) OnApplied(service model.ObjectName, digest any) {
	desired, _ := digest.(map[nodePort]target)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if sameTargets(s.desired[service], desired) {
		return
	}
	if s.desired[service] = desired; desired == nil {
		delete(s.desired, service)
	}
	s.markDirty(service)
}

// OnFrontendsLost stops serving some node ports of a Service.
func (s *Server) OnFrontendsLost(service model.ObjectName, frontends []model.Frontend) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	remaining := maps.Clone(s.desired[service])
	for _, frontend := range frontends {
		if frontend.IsNodePort() && frontend.Protocol == model.TCP {
			delete(remaining, nodePort{model.FamilyOf(frontend.Addr), frontend.Port})
		}
	}
	if len(remaining) == len(s.desired[service]) {
		return
	}
	if s.desired[service] = remaining; len(remaining) == 0 {
		delete(s.desired, service)
	}
	s.markDirty(service)
}

// OnSynced does nothing: each Service is handled independently.
func (*Server) OnSynced(selection.SyncState) {}

// markDirty makes Run apply the changes of a Service. The caller must hold the mutex.
func (s *Server) markDirty(service model.ObjectName) {
	s.dirty[service] = true
	s.changed.Notify()
}

// Run serves until ctx ends, in the network namespace of the process, and then ends all connections.
func (s *Server) Run(ctx context.Context) error {
	defer s.running.Wait()
	defer s.close()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
			s.applyChanges(ctx)
		case <-retry:
		}
		retry = nil
		if s.listenAll(ctx) {
			retry = time.After(retryAfter)
		}
	}
}

// close ends all ports and their connections.
func (s *Server) close() {
	for _, p := range s.ports {
		s.remove(p)
	}
}

// applyChanges updates the ports of changed Services. A port that another Service claims moves to that Service.
func (s *Server) applyChanges(ctx context.Context) {
	s.mutex.Lock()
	changed := make(map[model.ObjectName]map[nodePort]target, len(s.dirty))
	for service := range s.dirty {
		changed[service] = s.desired[service]
	}
	s.dirty = map[model.ObjectName]bool{}
	s.mutex.Unlock()
	for key, p := range s.ports {
		targets, isChanged := changed[p.service]
		if _, stays := targets[key]; isChanged && !stays {
			s.remove(p)
		}
	}
	for service, targets := range changed {
		for key, dest := range targets {
			s.updateTargets(ctx, service, key, dest)
		}
	}
}

// updateTargets sets the target of a Service's node port.
func (s *Server) updateTargets(ctx context.Context, service model.ObjectName, key nodePort, dest target) {
	p := s.ports[key]
	if p != nil && p.service != service {
		s.remove(p)
		p = nil
	}
	if p == nil {
		p = &port{nodePort: key, service: service}
		p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
		s.ports[key] = p
	}
	p.picker.update(dest)
	if p.isDesired = len(dest.endpoints) > 0; !p.isDesired {
		p.stopListening()
	}
}

func (s *Server) remove(p *port) {
	p.stopListening()
	p.end()
	delete(s.ports, p.nodePort)
}

// stopListening makes the kernel refuse new connections. Established ones continue.
func (p *port) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// listenAll listens on the ports that are desired but not served yet, and reports whether any failed.
func (s *Server) listenAll(ctx context.Context) (failed bool) {
	var findings []model.Finding
	listening := map[model.Family]int{}
	for _, p := range s.ports {
		if p.isDesired && p.listener == nil {
			if err := s.start(ctx, p); err != nil {
				s.observer.ListenFailed(p.family)
				findings = append(findings, p.finding(err))
			}
		}
		if p.listener != nil {
			listening[p.family]++
		}
	}
	for family := range s.addrs {
		s.observer.Listening(family, listening[family])
	}
	slices.SortFunc(findings, model.Finding.Compare)
	s.observer.Found(findings)
	return len(findings) > 0
}

func (s *Server) start(ctx context.Context, p *port) error {
	listener, err := s.listen(ctx, netip.AddrPortFrom(s.addrs[p.family], p.port))
	if err != nil {
		return err
	}
	p.listener = listener
	s.running.Go(func() { s.accept(p, listener) })
	return nil
}

func (p *port) finding(err error) model.Finding {
	return model.Finding{
		Code: model.LocalhostNodePortNotServed, Local: true,
		Reason: fmt.Sprintf("A node port is not served on this node's loopback address; retrying: %v", err),
	}.WithObject("Service", p.service)
}

// accept accepts connections until the listener is closed. It resets connections beyond the limit at once: they would
// have to wait for others that may never end.
func (s *Server) accept(p *port, listener net.Listener) {
	for {
		accepted, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		client := accepted.(*net.TCPConn) //nolint:forcetypeassert // the listener is one of TCP
		endpoint, ok := p.picker.pick(time.Now())
		switch {
		case !ok: // the last endpoint was just removed
			reset(client)
		case !s.limiter.acquire(p.service):
			s.observer.Connection(p.family, LimitExceeded)
			reset(client)
		default:
			s.running.Go(func() {
				defer s.limiter.release(p.service)
				s.forward(p.ctx, p.nodePort, client, endpoint)
			})
		}
	}
}
