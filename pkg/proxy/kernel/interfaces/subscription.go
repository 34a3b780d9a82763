//go:build linux

package interfaces

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// replyTimeout is how long a reply may take before it counts as lost. The kernel replies before the sending call
// returns.
const replyTimeout = 10 * time.Second

// subscription is a socket to which the kernel sends a notification for each change of an address, and another one to
// list the addresses. Both stay in the network namespace in which they were opened.
//
// A notification only means that something changed; the addresses are always listed. So losing some does no harm if it
// is known that there was at least one. This is not netlink.AddrSubscribe, because that ends when the buffer overflows,
// and leaks a goroutine if its reader stops.
type subscription struct {
	handle *netlink.Handle
	socket *nl.NetlinkSocket

	changed notify.Signal // holds one, for any number of notifications
	failed  chan error    // holds the error after which no notification arrives
	// overflowed is set if the kernel had no room for a notification.
	overflowed atomic.Bool
	reading    sync.WaitGroup
}

// subscribe opens both sockets in the network namespace of the calling thread. The kernel queues notifications from
// then on.
func subscribe() (*subscription, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("subscribe to address changes: %w", err)
	}
	handle, err := openHandle()
	if err != nil {
		socket.Close()
		return nil, err
	}
	return &subscription{handle: handle, socket: socket, changed: notify.NewSignal(), failed: make(chan error, 1)}, nil
}

func openHandle() (*netlink.Handle, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket to list addresses: %w", err)
	}
	if err := handle.SetSocketTimeout(replyTimeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("set up netlink socket to list addresses: %w", err)
	}
	return handle, nil
}

// startReading starts a goroutine that reads the notifications.
func (s *subscription) startReading() { s.reading.Go(s.read) }

// read signals that there were notifications, until the socket is closed or fails.
//
// The kernel drops notifications between an overflow and the moment when the buffer is empty, and reports that only
// once. No change is missed: the buffer was not empty at the overflow, and whatever is read from it later is signalled
// as a change.
func (s *subscription) read() {
	for {
		switch _, _, err := s.socket.Receive(); {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			s.overflowed.Store(true)
		case err != nil:
			s.failed <- fmt.Errorf("read address notifications: %w", err)
			return
		}
		s.changed.Notify()
	}
}

// close closes both sockets. Nothing of the subscription runs afterwards.
func (s *subscription) close() {
	s.socket.Close()
	s.handle.Close()
	s.reading.Wait()
}
