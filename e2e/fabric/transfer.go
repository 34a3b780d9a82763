package fabric

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
)

// ServeTransfers starts the server side of transfers on the namespace's own addresses. Close or the fabric's Close ends
// it; open connections continue until their client closes them.
func (n *Namespace) ServeTransfers(port uint16) (*Server, error) {
	return n.start(port, nil, func(s *Server, addr netip.AddrPort) error {
		listener, err := n.Listen("tcp", addr.String())
		if err != nil {
			return err
		}
		s.closers = append(s.closers, listener)
		s.serve(func() { acceptTransfers(listener) })
		return nil
	})
}

func acceptTransfers(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		go func() {
			defer conn.Close()
			if Blackhole(conn) != nil {
				return
			}
			for serveTransfer(conn) == nil {
				continue
			}
		}()
	}
}

// Transfer sends and receives the given numbers of bytes over a connection to ServeTransfers. It returns when both
// sides have read everything.
func Transfer(conn net.Conn, sent, received int) error {
	header := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(sent)), uint64(received))
	if _, err := conn.Write(header); err != nil {
		return err
	}
	if err := exchange(conn, int64(sent), int64(received)); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1)) // the server has read everything
	return err
}

func serveTransfer(conn net.Conn) error {
	var header [16]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return err
	}
	received, sent := binary.BigEndian.Uint64(header[:8]), binary.BigEndian.Uint64(header[8:])
	if err := exchange(conn, int64(sent), int64(received)); err != nil {
		return err
	}
	_, err := conn.Write([]byte{1})
	return err
}

// exchange writes and reads concurrently. If reading fails, it closes the connection, so that writing ends, too.
func exchange(conn net.Conn, sent, received int64) error {
	writing := make(chan error, 1)
	go func() {
		_, err := io.CopyN(conn, zeros{}, sent)
		writing <- err
	}()
	_, err := io.CopyN(io.Discard, conn, received)
	if err != nil {
		_ = conn.Close()
	}
	if written := <-writing; written != nil {
		return written
	}
	return err
}

// Blackhole disables keepalive, so that this end does not detect that the peer no longer exists.
func Blackhole(conn net.Conn) error { return conn.(*net.TCPConn).SetKeepAlive(false) }

// zeros is an endless stream of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
