package bench_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// dialler is a pod that dials, and the listening sockets of the servers. One thread does both, in sequence: a server
// that accepts concurrently would take CPU time from the measured connection.
type dialler struct {
	pod       *fabric.Pod
	listeners []unix.PollFd
	opened    int
}

// The source ports are used in rotation. When a port is reused, conntrack has deleted its last entry.
const (
	lowestPort = 1024
	portCount  = 1<<16 - lowestPort
)

// backlog is more than one because a pod of the Service is picked at random. Only one connection is open at a time.
const backlog = 16

func newDialler(b *testing.B, pod *fabric.Pod, servers []*fabric.Pod) *dialler {
	b.Helper()
	d := &dialler{pod: pod}
	for _, server := range servers {
		var listener int
		err := server.Do(func() (err error) { listener, err = listen(netip.AddrPortFrom(server.IPv4, podPort)); return err })
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := unix.Close(listener); err != nil {
				b.Errorf("stop listening on %s: %v", server.Name, err)
			}
		})
		d.listeners = append(d.listeners, unix.PollFd{Fd: int32(listener), Events: unix.POLLIN})
	}
	return d
}

func listen(addr netip.AddrPort) (listener int, err error) {
	listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	if err := errors.Join(unix.Bind(listener, socketAddr(addr)), unix.Listen(listener, backlog)); err != nil {
		return 0, fmt.Errorf("listen on %s: %w", addr, errors.Join(err, unix.Close(listener)))
	}
	return listener, nil
}

func socketAddr(addr netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
}

// connection has the measurements of one connection.
type connection struct {
	// connect is the time of connect(2) alone: the client's SYN, the server's reply, the client's ACK.
	connect time.Duration
	// total is the time of all steps of a client: creating a socket, binding its port, connect(2), and the final reset.
	total time.Duration
	// server is the number of the server that accepted.
	server int
}

// connect makes a connection from inside the pod's namespace and resets it. A reset leaves no port in TIME_WAIT, and a
// closed flow in conntrack.
func (d *dialler) connect(to netip.AddrPort) (connection, error) {
	from := netip.AddrPortFrom(d.pod.IPv4, uint16(lowestPort+d.opened%portCount))
	d.opened++
	begun := time.Now()
	client, err := open(from)
	if err != nil {
		return connection{}, err
	}
	started := time.Now()
	err = unix.Connect(client, socketAddr(to))
	connected := time.Now()
	if err != nil {
		return connection{}, fmt.Errorf("connect from %s to %s: %w", from, to, errors.Join(err, unix.Close(client)))
	}
	accepted, server, err := d.accept()
	if err != nil {
		return connection{}, fmt.Errorf("accept the connection from %s to %s: %w", from, to, errors.Join(err, unix.Close(client)))
	}
	ending := time.Now()
	err = unix.Close(client)
	ended := time.Now()
	if err := errors.Join(err, unix.Close(accepted)); err != nil {
		return connection{}, fmt.Errorf("end the connection from %s to %s: %w", from, to, err)
	}
	return connection{connect: connected.Sub(started), total: connected.Sub(begun) + ended.Sub(ending), server: server}, nil
}

// open returns a client's socket that is reset when it is closed.
func open(from netip.AddrPort) (client int, err error) {
	client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 0}),
		unix.Bind(client, socketAddr(from)))
	if err != nil {
		return 0, fmt.Errorf("bind %s: %w", from, errors.Join(err, unix.Close(client)))
	}
	return client, nil
}

// acceptTimeoutMillis is the time in milliseconds within which the server must see the client's connection.
const acceptTimeoutMillis = 1000

// accept accepts the only open connection on whichever server has it.
func (d *dialler) accept() (accepted, server int, err error) {
	ready, err := unix.Poll(d.listeners, acceptTimeoutMillis)
	for errors.Is(err, unix.EINTR) {
		ready, err = unix.Poll(d.listeners, acceptTimeoutMillis)
	}
	if err != nil {
		return 0, 0, err
	}
	if ready != 1 {
		return 0, 0, fmt.Errorf("%d servers have a connection, want 1", ready)
	}
	for number, listener := range d.listeners {
		if listener.Revents != 0 {
			accepted, _, err := unix.Accept4(int(listener.Fd), unix.SOCK_CLOEXEC)
			return accepted, number, err
		}
	}
	return 0, 0, errors.New("poll reported a connection, but no listener has one")
}
