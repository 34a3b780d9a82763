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

// How TCP connections are bounded: if there is one too many, the client with most of them loses its oldest one. CoreDNS
// keeps one for each query that it had under way at once, and lets go of it after ten seconds; another client than the
// node's cache has no reason to keep one.
const (
	maxConnections = 1000
	idleTimeout    = time.Minute
	// slowTimeout is how long one query may take to come, or one answer to go.
	slowTimeout = 5 * time.Second
)

// serveTCP answers until the listener is closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files, perhaps
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go s.serveConn(ctx, conn)
	}
}

// serveConn answers the queries of a connection, one after the other, until the client closes it, is slow, or has none
// for a while, or until ctx ends.
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
