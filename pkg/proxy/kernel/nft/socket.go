//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// receiveSize is the size of a receive buffer. The kernel makes the datagrams of a dump as large as the reader's
	// buffer allows, up to 32 KiB, and each datagram of a dump costs time.
	receiveSize = 64 << 10
	// sendLimit is the largest batch: about ten million elements. It is a limit only, and costs no memory.
	sendLimit = 512 << 20
	// replyTimeout is how long a reply may take before it counts as lost. The kernel replies before the sending call
	// returns.
	replyTimeout = 30 * time.Second
)

// socket is a netfilter netlink socket. It stays in the network namespace in which it was opened.
//
// It bypasses mdlayher's receiving, which peeks at each datagram first, and its sending, which copies.
type socket struct {
	conn   *netlink.Conn
	raw    syscall.RawConn
	buffer []byte
}

func openSocket() (*socket, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), conn.Close())
	}
	return &socket{conn: conn, raw: raw, buffer: make([]byte, receiveSize)}, nil
}

// openQuerySocket opens a socket for requests. An error in a reply identifies the failing message without repeating it,
// and points at the mistake in it.
func openQuerySocket() (*socket, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.conn.SetOption(netlink.CapAcknowledge, true),
		s.conn.SetOption(netlink.ExtendedAcknowledge, true),
		s.conn.SetWriteBuffer(sendLimit),
		s.conn.SetReadBuffer(1<<20),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up netlink socket: %w", err), s.conn.Close())
	}
	return s, nil
}

// send passes messages to the kernel, which has processed them by the time send returns.
func (s *socket) send(b []byte) error {
	var sendErr error
	err := s.raw.Control(func(fd uintptr) {
		for {
			sendErr = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
			if !errors.Is(sendErr, unix.EINTR) {
				return
			}
		}
	})
	if err = errors.Join(err, sendErr); err != nil {
		return fmt.Errorf("send %d bytes over netlink: %w", len(b), err)
	}
	return nil
}

// poll returns the next datagram, and EAGAIN if there is none. The bytes are valid until the next call.
func (s *socket) poll() ([]byte, error) {
	var n int
	var recvErr error
	err := s.raw.Control(func(fd uintptr) { n, recvErr = s.receiveFrom(fd) })
	return s.received(n, errors.Join(err, recvErr))
}

// wait returns the next datagram as soon as there is one. The socket's read deadline ends the waiting.
func (s *socket) wait() ([]byte, error) {
	var n int
	var recvErr error
	err := s.raw.Read(func(fd uintptr) bool {
		n, recvErr = s.receiveFrom(fd)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	return s.received(n, errors.Join(err, recvErr))
}

func (s *socket) receiveFrom(fd uintptr) (n int, err error) {
	for {
		n, _, err = unix.Recvfrom(int(fd), s.buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (s *socket) received(n int, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if n > len(s.buffer) {
		return nil, fmt.Errorf("netlink datagram of %d bytes exceeds the buffer of %d bytes", n, len(s.buffer))
	}
	return s.buffer[:n], nil
}

// reply returns the next datagram of a reply.
func (s *socket) reply(ctx context.Context) ([]byte, error) {
	b, err := s.poll()
	if !errors.Is(err, unix.EAGAIN) {
		return b, err
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	return s.wait()
}

// interrupt ends the current wait, or else the next one.
func (s *socket) interrupt() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }
