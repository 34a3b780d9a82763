//go:build linux

package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

const (
	// watchBuffer is the size of the kernel's buffer for changes by other processes that are not read yet.
	watchBuffer = 4 << 20
	// minUnobserved is the number of elements above which a batch is sent without a subscription. While one exists, the
	// kernel builds a notification for each element, even those that a filter drops: 255 ms instead of 62 for a hundred
	// thousand.
	minUnobserved = 1000
)

// ExternalChange is a transaction of another process that changed our tables.
type ExternalChange struct {
	// Families are the families whose table was changed; all of them if Overrun is set.
	Families []model.Family
	// PID and Process are the process that made the change, according to the kernel; zero and empty if Overrun is set.
	PID     uint32
	Process string
	// Overrun is set if the kernel may have dropped notifications: assume that everything changed.
	Overrun bool
}

// watcher receives the kernel's notifications of changed rulesets.
type watcher struct {
	socket    *socket
	overrun   atomic.Bool           // notifications may have been missed
	brokenErr atomic.Pointer[error] // why no notification can arrive any more
}

// openWatcher subscribes to the changes by every port but one.
func openWatcher(port uint32) (*watcher, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	filter, err := bpf.Assemble(excludePort(port))
	if err == nil {
		err = errors.Join(s.conn.SetReadBuffer(watchBuffer), s.conn.SetBPF(filter), s.conn.JoinGroup(unix.NFNLGRP_NFTABLES))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to nftables changes: %w", err), s.conn.Close())
	}
	return &watcher{socket: s}, nil
}

// excludePort returns a filter that passes a datagram unless its first message has the port ID. All messages of a
// datagram come from one transaction. A filter reads numbers in network byte order; the header is in host byte order.
func excludePort(port uint32) []bpf.Instruction {
	const portOffset = 12 // nlmsghdr.nlmsg_pid
	raw := binary.NativeEndian.AppendUint32(nil, port)
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: portOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(raw), SkipTrue: 1},
		bpf.RetConstant{Val: 1<<32 - 1},
		bpf.RetConstant{Val: 0},
	}
}

// Watch calls changed for each transaction of another process that changed our tables since Dial, until the context
// ends, and then returns nil. An element that a packet adds, or that expires, does not count. No other process can
// change an owned table: Watch then only waits.
//
// There may be one Watch at a time.
func (c *Conn) Watch(ctx context.Context, changed func(ExternalChange)) error {
	if c.watcher == nil {
		<-ctx.Done()
		return nil
	}
	return c.watcher.watch(ctx, changed)
}

func (w *watcher) watch(ctx context.Context, changed func(ExternalChange)) error {
	defer context.AfterFunc(ctx, w.socket.interrupt)()
	var current transaction
	for {
		b, err := w.socket.wait()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = w.socket.conn.SetReadDeadline(time.Time{}) // before checking the cause, so that no later interruption is missed
		case errors.Is(err, unix.ENOBUFS):
			w.drain()
			current = transaction{}
			w.overrun.Store(true)
		case err != nil:
			return fmt.Errorf("receive nftables changes: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if brokenErr := w.brokenErr.Load(); brokenErr != nil {
			return *brokenErr
		}
		if w.overrun.Swap(false) {
			changed(ExternalChange{Families: model.Families, Overrun: true})
		}
		if err == nil {
			current.read(b, changed)
		}
	}
}

// drain discards the rest of the buffer. Until it is empty the kernel drops everything new, without reporting that
// again.
func (w *watcher) drain() {
	for {
		if _, err := w.socket.poll(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// onOverrun makes Watch report that notifications may have been missed.
func (w *watcher) onOverrun() {
	w.overrun.Store(true)
	w.socket.interrupt()
}

// sendUnobserved sends a large batch without a subscription. The generation shows whether another process changed
// something meanwhile: it must be one higher if the kernel applied our batch, and otherwise unchanged.
func (c *Conn) sendUnobserved(ctx context.Context, send func() error) error {
	before, err := c.generation(ctx)
	if err != nil {
		return fmt.Errorf("commit batch: %w", err)
	}
	if err := c.watcher.socket.conn.LeaveGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("commit batch: pause notifications: %w", err)
	}
	sendErr := send()
	if err := c.watcher.socket.conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		joinErr := fmt.Errorf("resume nftables notifications: %w", err)
		c.watcher.brokenErr.Store(&joinErr)
	}
	after, err := c.generation(context.WithoutCancel(ctx))
	if err != nil || after != nextGeneration(before, sendErr == nil) || c.watcher.brokenErr.Load() != nil {
		c.watcher.onOverrun()
	}
	return sendErr
}

// nextGeneration returns the generation after one, with or without a transaction. Zero is never used.
func nextGeneration(generation uint32, committed bool) uint32 {
	if committed {
		generation++
		generation = max(generation, 1)
	}
	return generation
}
