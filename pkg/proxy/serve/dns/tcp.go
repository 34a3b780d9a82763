package dns

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Limits of TCP connections: if there are too many, the client with the most connections loses its oldest one. CoreDNS
// keeps one connection per concurrent query, and closes it after ten seconds. Clients other than the node's cache have
// no reason to keep connections.
const (
	maxConnections = 1000
	idleTimeout    = time.Minute
	// slowTimeout is how long it may take to receive one query or to send one response.
	slowTimeout = 5 * time.Second
)

// serveTCP serves until the listener is closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // perhaps too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go s.serveConn(ctx, conn)
	}
}

// serveConn answers the queries of a connection in sequence, until the client closes it, is slow, or is idle for too
// long, or until ctx ends.
func (s *Server) serveConn(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReaderSize(conn, minUDP)
	var length [2]byte
	for {
		if conn.SetDeadline(time.Now().Add(idleTimeout)) != nil {
			return
		}
		if _, err := io.ReadFull(reader, length[:1]); err != nil {
			return
		}
		if conn.SetDeadline(time.Now().Add(slowTimeout)) != nil {
			return
		}
		if _, err := io.ReadFull(reader, length[1:]); err != nil {
			return
		}
		size := binary.BigEndian.Uint16(length[:])
		if size > maxQueryLength {
			s.OnResponse(Result{Type: "other", Outcome: Malformed})
			return
		}
		query := make([]byte, size)
		if _, err := io.ReadFull(reader, query); err != nil {
			return
		}
		answer := s.answer(query, TCP)
		if answer == nil {
			return
		}
		message := binary.BigEndian.AppendUint16(make([]byte, 0, len(answer)+2), uint16(len(answer)))
		if _, err := conn.Write(append(message, answer...)); err != nil {
			return
		}
	}
}
