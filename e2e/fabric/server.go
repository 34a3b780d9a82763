package fabric

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// maxMessage bounds a request or a response over UDP and SCTP.
const maxMessage = 1200

// Server listens on one port of a namespace.
type Server struct {
	namespace *Namespace
	close     sync.Once
	err       error
	closers   []io.Closer
}

// Serve starts a server on the namespace's own addresses, or only on the given ones. It responds to every request over
// TCP (HTTP), UDP and SCTP with a Reply in JSON. Close or the fabric's Close ends it.
func (n *Namespace) Serve(port uint16, addrs ...netip.Addr) (*Server, error) {
	return n.start(port, addrs, (*Server).listen)
}

func (n *Namespace) start(port uint16, addrs []netip.Addr, listen func(*Server, netip.AddrPort) error) (*Server, error) {
	if len(addrs) == 0 {
		addrs = []netip.Addr{n.IPv4, n.IPv6}
	}
	server := &Server{namespace: n}
	for _, addr := range addrs {
		if err := listen(server, netip.AddrPortFrom(addr, port)); err != nil {
			return nil, errors.Join(fmt.Errorf("serve port %d on %s: %w", port, n.Name, err), server.Close())
		}
	}
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.fabric.servers = append(n.fabric.servers, server)
	return server, nil
}

// Close ends the server. It may be called twice.
func (s *Server) Close() error {
	s.close.Do(func() {
		var errs []error
		for _, closer := range s.closers {
			errs = append(errs, closer.Close())
		}
		s.err = errors.Join(errs...)
	})
	return s.err
}

func (s *Server) listen(addr netip.AddrPort) error {
	for _, listen := range []func(netip.AddrPort) error{s.listenTCP, s.listenUDP, s.listenSCTP} {
		if err := listen(addr); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) listenTCP(addr netip.AddrPort) error {
	listener, err := s.namespace.Listen("tcp", addr.String())
	if err != nil {
		return err
	}
	// The timeout is long because tests open thousands of connections before they use the first.
	server := &http.Server{Handler: s.replyHandler(addr), ReadHeaderTimeout: 5 * time.Minute}
	s.closers = append(s.closers, server, listenerOnly{listener})
	s.serve(func() { _ = server.Serve(listener) }) // it returns when the server is closed
	return nil
}

// replyHandler returns a handler that responds with a Reply for the given server address.
func (s *Server) replyHandler(server netip.AddrPort) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.reply(server, client)) // ignore the error if the client no longer exists
	}
}

func (s *Server) listenUDP(addr netip.AddrPort) error {
	conn, err := s.namespace.ListenPacket("udp", addr.String())
	if err != nil {
		return err
	}
	s.closers = append(s.closers, conn)
	s.serve(func() { s.serveUDP(conn, addr) })
	return nil
}

// serveUDP responds to datagrams until the socket is closed. It ignores other errors, which concern single datagrams.
func (s *Server) serveUDP(conn net.PacketConn, server netip.AddrPort) {
	buffer := make([]byte, maxMessage)
	for {
		_, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if client, ok := from.(*net.UDPAddr); ok {
			_, _ = conn.WriteTo(s.reply(server, client.AddrPort()), client) // ignore the error if the client no longer exists
		}
	}
}

func (s *Server) serve(loop func()) { s.namespace.fabric.serving.Go(loop) }

func (s *Server) reply(server, client netip.AddrPort) []byte {
	reply := Reply{Pod: s.namespace.Name, Node: s.namespace.nodeName, Server: server, Client: unmapped(client)}
	// Marshal cannot fail for strings and addresses.
	text, _ := json.Marshal(reply)
	return append(text, '\n')
}

// unmapped returns an IPv4-mapped IPv6 address as an IPv4 address.
func unmapped(addr netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// listenerOnly is a listener that its HTTP server may already have closed, or may never have registered.
type listenerOnly struct{ net.Listener }

// Close closes the listener and ignores that it may already be closed.
func (l listenerOnly) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
