//go:build linux

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
)

// Dial opens a connection from a new port and resets it at once: a closed one would stay in TIME_WAIT for a minute. It
// returns the result, and how long it took. A reset is a reply, and so is an ICMP error from the node itself, which a
// firewall on it may send. An ICMP error from another sender, such as a router, is not.
func Dial(ctx context.Context, addr netip.AddrPort, timeout time.Duration) (reachability.ProbeResult, time.Duration) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(timeout))
	defer cancel()
	socket := -1 // a duplicate descriptor: the dialer closes its own when it fails
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) { socket, err = withErrorQueue(int(fd), addr.Addr()) }), err)
	}}
	connection, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, addr)
	took := time.Since(began)
	if err == nil {
		_ = connection.SetLinger(0)
		_ = connection.Close()
	}
	result := resultOf(err, socket, addr.Addr())
	if socket >= 0 {
		_ = unix.Close(socket)
	}
	return result, took
}

// withErrorQueue makes the kernel queue a socket's ICMP errors with their sender (ip(7), IP_RECVERR). It returns a
// duplicate descriptor of the socket.
func withErrorQueue(fd int, to netip.Addr) (int, error) {
	level, option := unix.SOL_IPV6, unix.IPV6_RECVERR
	if to.Is4() {
		level, option = unix.SOL_IP, unix.IP_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return -1, err
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
}

// resultOf returns the result of a connection attempt that ended with err.
func resultOf(err error, socket int, node netip.Addr) reachability.ProbeResult {
	if err == nil {
		return reachability.Accepted
	}
	sender, isICMP := senderOf(socket)
	isRefused := errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET)
	if isICMP && sender == node || !isICMP && isRefused {
		return reachability.Reset
	}
	return reachability.NoReply
}

// senderOf returns the sender of the ICMP error that ended a connection. It returns false if there was none.
func senderOf(socket int) (netip.Addr, bool) {
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(socket, nil, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return netip.Addr{}, false
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	// A message is a struct sock_extended_err, whose fifth byte is the origin, and then the sender's struct sockaddr.
	const origin, sender = 4, 16
	for _, message := range messages {
		switch data := message.Data; {
		case err != nil || len(data) < sender+unix.SizeofSockaddrInet4:
		case data[origin] == unix.SO_EE_ORIGIN_ICMP && binary.NativeEndian.Uint16(data[sender:]) == unix.AF_INET:
			return netip.AddrFrom4([4]byte(data[sender+4:])), true
		case data[origin] == unix.SO_EE_ORIGIN_ICMP6 && len(data) >= sender+unix.SizeofSockaddrInet6:
			return netip.AddrFrom16([16]byte(data[sender+8:])), true
		}
	}
	return netip.Addr{}, false
}
