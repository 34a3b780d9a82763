//go:build linux

package accounting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const (
	// dumpInterval is how often the table is dumped to count long connections.
	dumpInterval = time.Minute
	// retryDelay is the delay after a failure.
	retryDelay = time.Minute
)

// Kernel is the accounting's access to the kernel.
type Kernel struct {
	// Table is the connection table; other users may share its dumps.
	Table conntrack.Table
	// Subscribe opens a subscription to DESTROY events.
	Subscribe func(buffer int) (*conntrack.DestroyEvents, error)
	// DumpInterval overrides dumpInterval; 0 means the default.
	DumpInterval time.Duration
}

// Accounting counts the traffic of the kernel's connections.
type Accounting struct {
	Counters *Counters
	Index    *serviceindex.Index

	kernel Kernel
	log    *slog.Logger
	dumps  atomic.Uint64
	// dumpRequested signals that DESTROY events were lost: a dump counts the connections that still exist.
	dumpRequested notify.Signal
	// lastDumpFailed reports whether the last dump failed. A failure is not logged again until a dump succeeds.
	lastDumpFailed bool

	mutex        sync.Mutex
	subscription *conntrack.DestroyEvents // nil while there is no subscription
	lostEarlier  uint64                   // events lost by earlier subscriptions
}

// New returns an Accounting with zero counters. It attributes connections by the given index.
func New(settings Settings, index *serviceindex.Index, kernel Kernel, log *slog.Logger) *Accounting {
	return &Accounting{
		Counters: NewCounters(settings), Index: index, kernel: kernel, log: log, dumpRequested: notify.NewSignal(),
	}
}

// LostEvents returns the number of DESTROY events that were lost because they arrived faster than they were read. It
// covers all connections of the node, to Services or not.
func (a *Accounting) LostEvents() uint64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.lostEarlier + a.lostByCurrent()
}

// lostByCurrent returns the number of events that the current subscription lost. The caller must hold the mutex.
func (a *Accounting) lostByCurrent() uint64 {
	if a.subscription == nil {
		return 0
	}
	lost, err := a.subscription.Lost()
	if err != nil {
		a.log.Warn("failed to read the number of lost destroy events", "error", err)
	}
	return lost
}

// setSubscription sets the current subscription. It must be set to nil before the subscription is closed.
func (a *Accounting) setSubscription(subscription *conntrack.DestroyEvents) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.lostEarlier += a.lostByCurrent()
	a.subscription = subscription
}

// Dumps returns the number of full dumps of the table.
func (a *Accounting) Dumps() uint64 { return a.dumps.Load() }

// Run counts until ctx ends. It starts after the proxy's first sync, because until then the Services of connections are
// unknown. After a failure it logs and retries: traffic does not depend on it. It always returns nil.
func (a *Accounting) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.Index.Complete():
	}
	for {
		if err := a.count(ctx); ctx.Err() == nil {
			a.log.Warn("failed to count connections; retrying", "error", err, "retryIn", retryDelay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryDelay):
		}
	}
}

// count receives events and dumps the table until receiving fails or ctx ends.
func (a *Accounting) count(ctx context.Context) error {
	events, err := a.kernel.Subscribe(conntrack.EventBuffer)
	if err != nil {
		return err
	}
	a.setSubscription(events)
	ctx, stop := context.WithCancel(ctx)
	var receiving sync.WaitGroup
	var receiveErr error
	receiving.Go(func() {
		defer stop()
		receiveErr = a.consumeEvents(ctx, events)
	})
	a.dumpLoop(ctx)
	stop()
	receiving.Wait()
	a.setSubscription(nil)
	return errors.Join(receiveErr, events.Close())
}

// consumeEvents counts connections from their DESTROY events.
func (a *Accounting) consumeEvents(ctx context.Context, events *conntrack.DestroyEvents) error {
	count := func(e *conntrack.Entry) { a.Counters.OnDestroy(e, a.Index.AttributeEnded(e), time.Now()) }
	for ctx.Err() == nil {
		err := events.Receive(ctx, count)
		switch {
		case errors.Is(err, conntrack.ErrOverrun):
			a.dumpRequested.Notify()
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("receive destroy events: %w", err)
		}
	}
	return nil
}

// dumpLoop dumps the table periodically and on request.
func (a *Accounting) dumpLoop(ctx context.Context) {
	for {
		a.dumpOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-a.dumpRequested:
		case <-time.After(cmp.Or(a.kernel.DumpInterval, dumpInterval)):
		}
	}
}

func (a *Accounting) dumpOnce(ctx context.Context) {
	a.Counters.BeginDump()
	translated := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT}
	now := time.Now()
	_, err := a.kernel.Table.Dump(ctx, translated, func(e *conntrack.Entry) bool {
		a.Counters.OnEntry(e, a.Index.Attribute(e), a.Index.AttributeEnded(e), now)
		return true
	})
	a.Counters.EndDump(err == nil, a.Index.Has, time.Now())
	if err == nil && a.dumps.Add(1) == 1 {
		a.log.Info("started to count connections", "alreadyOpen", a.Counters.State().Tracked)
	}
	isFailure := err != nil && ctx.Err() == nil && !errors.Is(err, conntrack.ErrInterrupted)
	if isFailure && !a.lastDumpFailed {
		a.log.Warn("failed to count long connections before they end; retrying", "error", err)
	}
	a.lastDumpFailed = isFailure
}
