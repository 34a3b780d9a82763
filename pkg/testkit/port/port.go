//go:build linux

// Package port reserves TCP ports for servers. Tests use it through package reserve; the lab's control plane uses it
// directly.
package port

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Reserved is a port that the kernel assigns to no other socket. While no server listens there, connections are
// refused.
type Reserved struct {
	// Addr is the address where a server that sets SO_REUSEADDR may listen, as every Go program does.
	Addr netip.AddrPort

	fd int
}

// Reserve reserves a port at an address, in the network namespace of the calling thread, until Close. The address ::
// means all addresses of both families.
//
// It binds a socket that does not listen. Linux never assigns the port of such a socket automatically, but allows
// binding to it explicitly with SO_REUSEADDR (inet_csk_get_port, __inet_hash_connect).
func Reserve(addr netip.Addr) (*Reserved, error) {
	domain, local := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: addr.As16()})
	if addr.Is4() {
		domain, local = unix.AF_INET, &unix.SockaddrInet4{Addr: addr.As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port of %s: %w", addr, os.NewSyscallError("socket", err))
	}
	r := &Reserved{fd: fd}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, r.closeWithError(addr, "setsockopt", err)
	}
	if err := unix.Bind(fd, local); err != nil {
		return nil, r.closeWithError(addr, "bind", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return nil, r.closeWithError(addr, "getsockname", err)
	}
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		r.Addr = netip.AddrPortFrom(addr, uint16(bound.Port))
	case *unix.SockaddrInet6:
		r.Addr = netip.AddrPortFrom(addr, uint16(bound.Port))
	}
	return r, nil
}

func (r *Reserved) closeWithError(addr netip.Addr, call string, err error) error {
	r.Close()
	return fmt.Errorf("reserve a port of %s: %w", addr, os.NewSyscallError(call, err))
}

// Close releases the port.
func (r *Reserved) Close() { _ = unix.Close(r.fd) } // nothing is buffered
