//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// groupDestroy is NFNLGRP_CONNTRACK_DESTROY.
const groupDestroy = 3

// EventBuffer is the size of the receive buffer to request, in bytes. It has room for the destroy events of 26,000
// connections. The kernel scans for expired entries only periodically, so events arrive by the thousand. The kernel
// doubles the requested size, to 32 MiB, and an event takes 1,280 bytes. net.core.rmem_max does not limit it.
const EventBuffer = 16 << 20

// DestroyEvents receives the kernel's events of entries that end. There may be none for entries that were created
// before the first subscription.
//
// Reliable delivery is never requested: a reader that hangs would keep dead entries in the table until no connection
// can be created. The kernel drops events that do not fit, and reports that.
type DestroyEvents struct {
	socket *netlink.Conn
	reader *reader
}

// ErrOverrun means that the kernel dropped events because they were not read in time. Lost returns how many.
var ErrOverrun = errors.New("destroy events were lost because they were not read in time")

// Subscribe subscribes to the events of entries that end, with a receive buffer of the given number of bytes.
func (c *Conn) Subscribe(buffer int) (*DestroyEvents, error) {
	socket, err := c.open()
	if err != nil {
		return nil, fmt.Errorf("open socket for destroy events: %w", err)
	}
	events := &DestroyEvents{socket: socket}
	if err := events.setUp(buffer); err != nil {
		return nil, fmt.Errorf("subscribe to destroy events: %w", errors.Join(err, socket.Close()))
	}
	return events, nil
}

func (d *DestroyEvents) setUp(buffer int) (err error) {
	if d.reader, err = newReader(d.socket); err != nil {
		return err
	}
	var optErr error
	err = d.reader.raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	})
	return errors.Join(err, optErr, d.socket.JoinGroup(groupDestroy))
}

// Close ends the subscription. Receive must not be running.
func (d *DestroyEvents) Close() error {
	d.reader.release()
	return d.socket.Close()
}

// socketMemory is the result of SO_MEMINFO (enum of linux/sock_diag.h). Only the last value is used.
type socketMemory struct {
	_     [8]uint32
	drops uint32 // SK_MEMINFO_DROPS
}

// Lost returns how many events the kernel dropped: each event is a message of its own. It counts events of all
// connections of the node, to Services or not. Lost must not be called after Close.
func (d *DestroyEvents) Lost() (uint64, error) {
	var statistics socketMemory
	size := uint32(unsafe.Sizeof(statistics))
	var errno unix.Errno
	err := d.reader.raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&statistics)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return 0, fmt.Errorf("read number of lost destroy events: %w", err)
	}
	return uint64(statistics.drops), nil
}

// Receive waits for entries that end, and passes them to each. The entry is valid only until each returns. The error is
// ErrOverrun if events were lost before, and Receive may be called again; any other error is final.
func (d *DestroyEvents) Receive(ctx context.Context, each func(*Entry)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = d.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := d.receive(each)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (d *DestroyEvents) receive(each func(*Entry)) error {
	var e Entry
	_, err := d.reader.read(func(message []byte) (more bool, err error) {
		if err := e.parse(message); err != nil {
			return true, err
		}
		if e.hasPorts() {
			each(&e)
		}
		return true, nil
	})
	if errors.Is(err, unix.ENOBUFS) {
		return ErrOverrun
	}
	return err
}
