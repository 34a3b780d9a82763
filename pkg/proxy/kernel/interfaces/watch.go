//go:build linux

package interfaces

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// A burst of changes ends after quietTime without a change, and is cut off after burstTime so that addresses that keep
// changing are listed nonetheless.
const (
	quietTime = 5 * time.Millisecond
	burstTime = 100 * time.Millisecond
)

// relistInterval is how long after the latest notification the addresses are listed once more. When an interface goes
// down the kernel reports its IPv6 addresses before it removes them from the list (addrconf_ifdown), and since Linux
// 6.9 it lists without waiting for that.
const relistInterval = time.Second

// Failures are retried after minRetryDelay, and then after twice as long each time, up to maxRetryDelay.
const (
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = 10 * time.Second
)

// Watch delivers the addresses of all interfaces, of both families and any scope and state, loopback included, sorted,
// each once; an IPv6 link-local address has no zone. It delivers them at the start, and all of them again whenever they
// have changed, until ctx ends; then it returns nil. A delivery is never nil, even if it is empty. Addresses that
// change within a few milliseconds are delivered together. A delivery must not be modified; the next one waits until
// deliver returns, and then has the current addresses.
//
// Watch returns an error only if the addresses could not be listed at the start. Later failures are logged and retried.
//
// The interfaces are those of the calling thread's network namespace.
func Watch(ctx context.Context, log *slog.Logger, deliver func([]netip.Addr)) error {
	m := monitor{log: log, deliver: deliver, subscribe: subscribe, list: list}
	return m.run(ctx)
}

type monitor struct {
	log       *slog.Logger
	deliver   func([]netip.Addr)
	subscribe func() (*subscription, error)
	list      func(*netlink.Handle) ([]netip.Addr, error)
	// delivered is the latest delivery; nil before the first.
	delivered []netip.Addr
}

func (m *monitor) run(ctx context.Context) error {
	delay := minRetryDelay
	for {
		began := time.Now()
		err := m.runOnce(ctx)
		if err == nil || m.delivered == nil {
			return err
		}
		if time.Since(began) > maxRetryDelay {
			delay = minRetryDelay
		}
		m.log.Warn("lost the subscription to interface addresses; subscribing again", "in", delay, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRetryDelay)
	}
}

// runOnce subscribes and delivers until ctx ends, which is no error, or the subscription fails.
func (m *monitor) runOnce(ctx context.Context) error {
	s, err := m.subscribe()
	if err != nil {
		return err
	}
	defer s.close()
	// The kernel queues notifications since the subscription was opened: no change is lost between this list and the first
	// notification.
	if err := m.relist(s); err != nil {
		return err
	}
	s.startReading()
	relistTimer := time.After(relistInterval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case <-relistTimer:
			relistTimer = nil
		case <-s.changed:
			debounce(ctx, s.changed)
			relistTimer = time.After(relistInterval)
		}
		if s.overflowed.Swap(false) {
			m.log.Info("the kernel dropped address events; listing all addresses")
		}
		if err := m.relist(s); err != nil {
			return err
		}
	}
}

// relist lists the addresses and delivers them if they changed.
func (m *monitor) relist(s *subscription) error {
	addrs, err := m.list(s.handle)
	if err != nil {
		return err
	}
	if m.delivered != nil && slices.Equal(addrs, m.delivered) {
		return nil
	}
	m.delivered = addrs
	m.deliver(addrs)
	return nil
}

// debounce waits for the end of a burst, or of ctx.
func debounce(ctx context.Context, changed <-chan struct{}) {
	end, quiet := time.After(burstTime), time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-quiet.C:
			return
		case <-changed:
			quiet.Reset(quietTime)
		}
	}
}
