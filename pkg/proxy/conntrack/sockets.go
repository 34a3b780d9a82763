//go:build linux

package conntrack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// threadNamespace is the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// sockets opens sockets in one network namespace. It may be used by several goroutines.
type sockets struct {
	namespace *os.File

	mutex sync.Mutex
	// idle is a socket for the next dump; may be nil. Closing a netfilter socket waits until the kernel has tidied up
	// after the last change of nftables, some 10 ms, and no other change can begin meanwhile (nf_tables' rcv_nl_event).
	idle *netlink.Conn
	left bool
}

// here opens sockets in the network namespace of the calling thread.
func here() (*sockets, error) {
	namespace, err := os.Open(threadNamespace)
	if err != nil {
		return nil, fmt.Errorf("finding the network namespace: %w", err)
	}
	return &sockets{namespace: namespace}, nil
}

// open opens a socket of netfilter. Threads of a daemon are all in the same namespace. Entering a namespace takes a
// privilege (CAP_SYS_ADMIN) that the daemon otherwise does not need.
func (s *sockets) open() (*netlink.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wanted, err := s.namespace.Stat()
	if err != nil {
		return nil, err
	}
	if current, err := os.Stat(threadNamespace); err == nil && os.SameFile(wanted, current) {
		return netlink.Dial(unix.NETLINK_NETFILTER, nil)
	}
	raw, err := s.namespace.SyscallConn()
	if err != nil {
		return nil, err
	}
	var socket *netlink.Conn
	var failed error
	err = raw.Control(func(fd uintptr) {
		socket, failed = netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(fd)})
	})
	return socket, errors.Join(err, failed)
}

// take returns a socket for a dump: the idle one, or a new one.
func (s *sockets) take() (*netlink.Conn, error) {
	s.mutex.Lock()
	socket := s.idle
	s.idle = nil
	s.mutex.Unlock()
	if socket != nil {
		return socket, nil
	}
	return s.open()
}

// giveBack takes a socket whose dump is over. If the kernel may still send something to it, it is closed.
func (s *sockets) giveBack(socket *netlink.Conn, isSilent bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !isSilent || s.left || s.idle != nil {
		_ = socket.Close()
		return
	}
	s.idle = socket
}

func (s *sockets) leave() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.left = true; s.idle != nil {
		_ = s.idle.Close()
		s.idle = nil
	}
	_ = s.namespace.Close()
}
