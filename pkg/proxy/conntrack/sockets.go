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

// sockets opens sockets in one network namespace.
type sockets struct{ namespace *os.File }

// here opens sockets in the network namespace of the calling thread.
func here() (sockets, error) {
	namespace, err := os.Open(threadNamespace)
	if err != nil {
		return sockets{}, fmt.Errorf("finding the network namespace: %w", err)
	}
	return sockets{namespace}, nil
}

// open opens a socket of netfilter. Threads of a daemon are all in the same namespace. To enter it would take a privilege
// (CAP_SYS_ADMIN) that it need not have.
func (s sockets) open() (*netlink.Conn, error) {
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

func (s sockets) leave() { _ = s.namespace.Close() }
