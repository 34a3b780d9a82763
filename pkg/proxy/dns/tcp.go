package dns

import (
	"bufio"
	"container/list"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// How TCP connections are bounded. CoreDNS keeps one for each query that it had under way at once, and lets go of it
// after ten seconds; another client than the node's cache has no reason to keep one.
const (
	maxConnections = 1000
	idleTimeout    = time.Minute
	// slowTimeout is how long one query may take to come, or one answer to go.
	slowTimeout = 5 * time.Second
)

// serveTCP answers until the listener is closed.
func (s *Server) serveTCP(listener *net.TCPListener, connections *connections) {
	for {
		conn, err := listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files, perhaps
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go s.converse(conn, connections)
	}
}

// converse answers the queries of a connection, one after the other, until the client closes it, is slow, or has none
// for a while.
func (s *Server) converse(conn *net.TCPConn, connections *connections) {
	use := connections.add(conn)
	defer connections.remove(conn)
	reader := bufio.NewReaderSize(conn, leastOverUDP)
	var length [2]byte
	for {
		if conn.SetDeadline(time.Now().Add(idleTimeout)) != nil {
			return
		}
		if _, err := io.ReadFull(reader, length[:1]); err != nil {
			return
		}
		use()
		if conn.SetDeadline(time.Now().Add(slowTimeout)) != nil {
			return
		}
		if _, err := io.ReadFull(reader, length[1:]); err != nil {
			return
		}
		size := binary.BigEndian.Uint16(length[:])
		if size > maxQueryLength {
			s.Answered(Result{Type: "other", Outcome: Malformed})
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

// connections are the open ones, the least recently used first. If there is one too many, the first is closed.
type connections struct {
	mutex    sync.Mutex
	byConn   map[*net.TCPConn]*list.Element
	byUse    *list.List
	isClosed bool
}

func newConnections() *connections {
	return &connections{byConn: map[*net.TCPConn]*list.Element{}, byUse: list.New()}
}

// add takes a connection in, and returns what is called when it is used.
func (c *connections) add(conn *net.TCPConn) (use func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		_ = conn.Close()
	}
	if c.byUse.Len() >= maxConnections {
		_ = c.byUse.Front().Value.(*net.TCPConn).Close() // its goroutine removes it
		c.byUse.MoveToBack(c.byUse.Front())
	}
	element := c.byUse.PushBack(conn)
	c.byConn[conn] = element
	return func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.byUse.MoveToBack(element)
	}
}

func (c *connections) remove(conn *net.TCPConn) {
	_ = conn.Close()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.byUse.Remove(c.byConn[conn])
	delete(c.byConn, conn)
}

func (c *connections) closeAll() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isClosed = true
	for conn := range c.byConn {
		_ = conn.Close()
	}
}
