//go:build linux

package localhost

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"
)

// Outcome is the outcome of a connection attempt.
type Outcome string

// The outcomes.
const (
	Forwarded     Outcome = "forwarded"      // an endpoint accepted it
	Unreachable   Outcome = "unreachable"    // the chosen endpoint did not accept it
	LimitExceeded Outcome = "limit_exceeded" // the Service had reached its connection limit
)

// dialTimeout is the same as kube-proxy's.
const dialTimeout = 5 * time.Second

// dial connects to an endpoint. Keepalive (Go's default, 15 s) detects an endpoint that disappeared.
func dial(ctx context.Context, endpoint netip.AddrPort) (*net.TCPConn, error) {
	var dialer net.Dialer
	return dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, endpoint)
}

// forward forwards data between a client and an endpoint until both have closed their side, or ctx ends. Then it closes
// both connections.
func (s *Server) forward(ctx context.Context, port nodePort, client *net.TCPConn, endpoint netip.AddrPort) {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	backend, err := s.dial(dialCtx, endpoint)
	cancel()
	if err != nil {
		s.observer.Connection(port.family, Unreachable)
		reset(client)
		return
	}
	s.observer.Connection(port.family, Forwarded)
	stop := context.AfterFunc(ctx, func() { reset(client, backend) })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyOneWay(backend, client)
	}()
	copyOneWay(client, backend)
	<-done
	_ = client.Close()
	_ = backend.Close()
}

// copyOneWay forwards one direction, including its end; the other direction continues. If one side fails, the other
// gets a reset. The kernel moves the bytes (splice), and a slow receiver slows the sender: at most one pipe and two
// sockets buffer data in between.
func copyOneWay(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		reset(to, from)
	}
}

// reset closes connections with a reset, so that the peers do not mistake it for a regular end.
func reset(connections ...*net.TCPConn) {
	for _, connection := range connections {
		_ = connection.SetLinger(0)
		_ = connection.Close()
	}
}
