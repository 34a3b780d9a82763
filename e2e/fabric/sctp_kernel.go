package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const protocolSCTP = unix.IPPROTO_SCTP

// dialStream connects a stream socket of any protocol, from a port that was not used recently. Package net knows only
// the family and type of the socket and treats it as TCP, which works for all methods of net.Conn.
func (n *Namespace) dialStream(protocol int, source netip.Addr, addr netip.AddrPort, deadline time.Time) (conn net.Conn, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(domain(addr), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		socket := os.NewFile(uintptr(fd), "stream "+addr.String())
		defer socket.Close() // FileConn has a copy
		// The send timeout limits connect (socket(7)), which then fails with EINPROGRESS.
		timeout := unix.NsecToTimeval(max(time.Until(deadline), time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := n.bindFresh(fd, source, addr); err != nil {
			return err
		}
		if err := connectStream(fd, addr); err != nil {
			return err
		}
		conn, err = net.FileConn(socket)
		return err
	})
	return conn, err
}

func connectStream(fd int, addr netip.AddrPort) error {
	err := unix.Connect(fd, sockaddr(addr))
	if errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w", os.ErrDeadlineExceeded)
	}
	return os.NewSyscallError("connect", err)
}

func (n *Namespace) bindFresh(fd int, source netip.Addr, to netip.AddrPort) error {
	switch {
	case source.IsValid():
	case to.Addr().Is6():
		source = netip.IPv6Unspecified()
	default:
		source = netip.IPv4Unspecified()
	}
	for range portCount {
		err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, n.freshPort())))
		if !errors.Is(err, unix.EADDRINUSE) {
			return os.NewSyscallError("bind", err)
		}
	}
	return os.NewSyscallError("bind", unix.EADDRINUSE)
}

// listenStream responds to every message on a stream socket of any protocol.
func (s *Server) listenStream(protocol int, addr netip.AddrPort) error {
	var listener net.Listener
	err := s.namespace.Do(func() error {
		fd, err := unix.Socket(domain(addr), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		socket := os.NewFile(uintptr(fd), "listener "+addr.String())
		defer socket.Close() // FileListener has a copy
		if err := unix.Bind(fd, sockaddr(addr)); err != nil {
			return os.NewSyscallError("bind", err)
		}
		if err := unix.Listen(fd, 128); err != nil {
			return os.NewSyscallError("listen", err)
		}
		listener, err = net.FileListener(socket)
		return err
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, listener)
	s.serve(func() { s.accept(listener, addr) })
	return nil
}

// accept responds to the requests of every association until the listener is closed.
func (s *Server) accept(listener net.Listener, server netip.AddrPort) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.serve(func() { s.serveStream(conn, server) })
	}
}

// serveStream responds to requests until the client ends the association or is idle for too long.
func (s *Server) serveStream(conn net.Conn, server netip.AddrPort) {
	defer conn.Close()
	client, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	buffer := make([]byte, maxMessage)
	for err == nil {
		if err = conn.SetDeadline(time.Now().Add(5 * Timeout)); err != nil {
			return
		}
		if _, err = conn.Read(buffer); err == nil {
			_, err = conn.Write(s.reply(server, client))
		}
	}
}

func domain(addr netip.AddrPort) int {
	if addr.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
}
