//go:build linux

package localhost

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"
)

// Outcome is what happened to a connection.
type Outcome string

// The outcomes.
const (
	Forwarded     Outcome = "forwarded"      // an endpoint took it
	Unreachable   Outcome = "unreachable"    // the endpoint that was drawn did not
	LimitExceeded Outcome = "limit_exceeded" // the Service had as many connections as it may have
)

// dialTimeout is kube-proxy's.
const dialTimeout = 5 * time.Second

// dial connects to an endpoint. Keepalive (Go's default, 15 s) detects when it is gone.
func dial(ctx context.Context, endpoint netip.AddrPort) (*net.TCPConn, error) {
	var dialer net.Dialer
	return dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, endpoint)
}

// forward passes on what a client and an endpoint send each other until both have ended, or ctx ends. The client's
// connection is closed then.
func (s *Server) forward(ctx context.Context, port nodePort, client *net.TCPConn, endpoint netip.AddrPort) {
	dialling, cancel := context.WithTimeout(ctx, dialTimeout)
	backend, err := s.dial(dialling, endpoint)
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

// copyOneWay passes on what one side sends, and that it has ended; the other direction goes on. If one side breaks, the other
// gets a reset. The kernel moves the bytes (splice), and a reader that is slow slows the sender: what waits in between
// is what a pipe and two sockets hold.
func copyOneWay(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		reset(to, from)
	}
}

// reset closes connections so that the other end does not mistake it for a regular end.
func reset(connections ...*net.TCPConn) {
	for _, connection := range connections {
		_ = connection.SetLinger(0)
		_ = connection.Close()
	}
}
