//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// groupDestroy is NFNLGRP_CONNTRACK_DESTROY.
const groupDestroy = 3

// EventBuffer holds the ends of 26,000 connections that come while nobody reads. The kernel looks for what has expired once
// in a while, so that ends come by the thousand. It doubles the size, and an end takes 1,280 bytes there: 32 MiB at most.
// net.core.rmem_max does not bound it.
const EventBuffer = 16 << 20

// Ends are the entries that end, as the kernel tells of them. Of those that began before anybody listened it may tell
// nothing.
//
// The kernel is never asked to deliver reliably: a reader that stands still would keep dead entries in the table, until
// nobody can begin a connection. It drops what finds no room, and says so.
type Ends struct {
	socket   *netlink.Conn
	reader   *reader
	overruns atomic.Uint64
}

// ErrOverrun says that the kernel has dropped ends because they were not read in time; nobody knows how many.
var ErrOverrun = errors.New("ends of connections were not read in time")

// Subscribe listens to the ends of entries, with a receive buffer of so many bytes.
func (c *Conn) Subscribe(buffer int) (*Ends, error) {
	socket, err := c.open()
	if err != nil {
		return nil, fmt.Errorf("opening a socket for the ends of connections: %w", err)
	}
	ends := &Ends{socket: socket}
	if err := ends.setUp(buffer); err != nil {
		return nil, fmt.Errorf("listening to the ends of connections: %w", errors.Join(err, socket.Close()))
	}
	return ends, nil
}

func (s *Ends) setUp(buffer int) (err error) {
	if s.reader, err = newReader(s.socket); err != nil {
		return err
	}
	var failed error
	err = s.reader.raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	})
	return errors.Join(err, failed, s.socket.JoinGroup(groupDestroy))
}

// Close ends the subscription. Nobody may be receiving.
func (s *Ends) Close() error {
	s.reader.release()
	return s.socket.Close()
}

// Overruns returns how often ends were lost.
func (s *Ends) Overruns() uint64 { return s.overruns.Load() }

// Receive waits until entries have ended, and gives them to each. The entry is another one after each has returned. The
// error is ErrOverrun if others were lost before, and may be followed by more; any other is the last.
func (s *Ends) Receive(ctx context.Context, each func(*Entry)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := s.receive(each)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Drain gives what is there already to each, and waits for nothing; for some time at most, for more may come without an end.
// It is for the end of the program, when Receive has returned for the last time.
func (s *Ends) Drain(most time.Duration, each func(*Entry)) error {
	if err := s.socket.SetReadDeadline(time.Time{}); err != nil { // Receive may have set one
		return err
	}
	s.reader.isDraining = true
	defer func() { s.reader.isDraining = false }()
	for began := time.Now(); time.Since(began) < most; {
		switch err := s.receive(each); {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil && !errors.Is(err, ErrOverrun):
			return err
		}
	}
	return nil
}

func (s *Ends) receive(each func(*Entry)) error {
	var e Entry
	_, err := s.reader.read(func(message []byte) (more bool, err error) {
		if err := e.parse(message); err != nil {
			return true, err
		}
		if e.hasPorts() {
			each(&e)
		}
		return true, nil
	})
	if errors.Is(err, unix.ENOBUFS) {
		s.overruns.Add(1)
		return ErrOverrun
	}
	return err
}
