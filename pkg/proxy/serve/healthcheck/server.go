//go:build linux

package healthcheck

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
)

// server serves one address and port. Its response may change while it runs, and may even be that of another Service.
type server struct {
	response atomic.Pointer[response]
	listener *listener
	// end makes the server accept no more connections, close idle ones, and finish the responses in progress.
	end context.CancelFunc
}

// start binds an address and serves clients until the server ends. The server keeps the values of ctx, but does not end
// with it.
func (s *Servers) start(ctx context.Context, addr netip.AddrPort, initial response) (*server, error) {
	bound, err := listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	started := &server{listener: bound, end: end}
	started.response.Store(&initial)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		started.response.Load().write(w, s.healthy())
	})
	s.running.Go(func() {
		defer end()
		if err := httpserve.Serve(running, bound, handler, s.log); err != nil {
			s.log.Warn("a health check server stopped; the next sync restarts it",
				"service", started.response.Load().service, "address", addr, "error", err)
		}
	})
	return started, nil
}

// isStopped reports whether the server has stopped listening.
func (s *server) isStopped() bool {
	select {
	case <-s.listener.closed:
		return true
	default:
		return false
	}
}

// listener is a listener with a channel that is closed when the listener is.
type listener struct {
	net.Listener
	closed chan struct{}
	once   sync.Once
}

// Close closes the listener, and then the channel.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { close(l.closed) })
	return err
}

// listen binds an address for its own family only, so that the same port can be bound in the other family. The error
// contains the address.
func listen(ctx context.Context, addr netip.AddrPort) (*listener, error) {
	network := "tcp6" // with IPV6_V6ONLY
	if addr.Addr().Is4() {
		network = "tcp4"
	}
	config := net.ListenConfig{Control: freebind}
	bound, err := config.Listen(ctx, network, addr.String())
	if err != nil {
		return nil, err
	}
	return &listener{Listener: bound, closed: make(chan struct{})}, nil
}

// freebind allows binding an address that is not usable yet, or no longer usable. An IPv6 address is tentative for a
// second or more after it was added; the server is reachable as soon as the address is usable, without a retry.
func freebind(network, _ string, raw syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	var sockoptErr error
	err := raw.Control(func(fd uintptr) { sockoptErr = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, sockoptErr)
}
