//go:build linux

package conntrack

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// threadNamespace is the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// sockets opens sockets in one network namespace. It may be used by several goroutines.
type sockets struct {
	namespace *os.File
	// idle holds a socket for the next dump. Closing a netfilter socket waits until the kernel has cleaned up after the
	// last change of nftables, some 10 ms, and no other change can start meanwhile (nf_tables' rcv_nl_event).
	idle chan *netlink.Conn
}

// openInCurrentNamespace opens sockets in the network namespace of the calling thread.
func openInCurrentNamespace() (*sockets, error) {
	namespace, err := os.Open(threadNamespace)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return &sockets{namespace: namespace, idle: make(chan *netlink.Conn, 1)}, nil
}

// open opens a netfilter socket. All threads of a daemon are in the same namespace. Entering a namespace takes a
// privilege (CAP_SYS_ADMIN) that the daemon otherwise does not need.
func (s *sockets) open() (*netlink.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	target, err := s.namespace.Stat()
	if err != nil {
		return nil, err
	}
	if current, err := os.Stat(threadNamespace); err == nil && os.SameFile(target, current) {
		return netlink.Dial(unix.NETLINK_NETFILTER, nil)
	}
	raw, err := s.namespace.SyscallConn()
	if err != nil {
		return nil, err
	}
	var socket *netlink.Conn
	var dialErr error
	err = raw.Control(func(fd uintptr) {
		socket, dialErr = netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(fd)})
	})
	return socket, errors.Join(err, dialErr)
}

// acquire returns a socket for a dump: the idle one, or a new one.
func (s *sockets) acquire() (*netlink.Conn, error) {
	select {
	case socket := <-s.idle:
		return socket, nil
	default:
		return s.open()
	}
}

// release takes back a socket whose dump is over. If the kernel may still send something to it, it is closed.
func (s *sockets) release(socket *netlink.Conn, isDrained bool) {
	if isDrained {
		select {
		case s.idle <- socket:
			return
		default:
		}
	}
	_ = socket.Close()
}

// closeAll closes the namespace and the idle socket. No dump may be running.
func (s *sockets) closeAll() {
	_ = s.namespace.Close()
	select {
	case socket := <-s.idle:
		_ = socket.Close()
	default:
	}
}
