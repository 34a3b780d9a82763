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
	// dumpInterval is how often the table is read for connections that last.
	dumpInterval = time.Minute
	// retryDelay is the pause before another try after a failure.
	retryDelay = time.Minute
)

// Kernel is what the kernel is asked for.
type Kernel struct {
	// Table is looked at, together with whoever else looks.
	Table conntrack.Table
	// Subscribe listens to ends.
	Subscribe func(buffer int) (*conntrack.DestroyEvents, error)
	// DumpInterval is how often the table is read for connections that last; 0 for the usual interval.
	DumpInterval time.Duration
}

// Accounting keeps a ledger of what the kernel's connections move.
type Accounting struct {
	Counters *Counters
	Owners   *serviceindex.Index

	kernel Kernel
	log    *slog.Logger
	dumps  atomic.Uint64
	// dumpRequested holds a signal after ends were lost: a dump catches up with the connections that still live.
	dumpRequested notify.Signal
	// loggedFailure was logged, and is not logged again until it changes.
	loggedFailure bool

	mutex sync.Mutex
	ends  *conntrack.DestroyEvents // nil while nobody listens
	lost  uint64                   // ends, by earlier ones
}

// New returns accounting that has counted nothing yet. The owners must have been asked for places.
func New(settings Settings, of *serviceindex.Index, kernel Kernel, log *slog.Logger) *Accounting {
	return &Accounting{
		Counters: NewCounters(settings), Owners: of, kernel: kernel, log: log, dumpRequested: notify.NewSignal(),
	}
}

// LostEnds returns how many ends were lost because they came faster than they were read: those of all connections of the
// node, to Services or not.
func (a *Accounting) LostEnds() uint64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.lost + a.lostNow()
}

// lostNow returns what was lost since the present subscription began. The mutex is held.
func (a *Accounting) lostNow() uint64 {
	if a.ends == nil {
		return 0
	}
	lost, err := a.ends.Lost()
	if err != nil {
		a.log.Warn("lost ends of connections are not counted", "error", err)
	}
	return lost
}

// listensTo sets the present subscription, and nil when it is about to be closed.
func (a *Accounting) listensTo(ends *conntrack.DestroyEvents) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.lost += a.lostNow()
	a.ends = ends
}

// Dumps returns how many dumps there were of the whole table.
func (a *Accounting) Dumps() uint64 { return a.dumps.Load() }

// Run counts until ctx ends. It begins once the proxy has synced, because until then the owners of connections are
// unknown. After a failure it logs and tries again: traffic does not depend on it. The error is always nil.
func (a *Accounting) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.Owners.Complete():
	}
	for {
		if err := a.count(ctx); ctx.Err() == nil {
			a.log.Warn("connections are not counted; trying again", "error", err, "retryIn", retryDelay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryDelay):
		}
	}
}

// count listens and looks, until one of both fails or ctx ends.
func (a *Accounting) count(ctx context.Context) error {
	ends, err := a.kernel.Subscribe(conntrack.EventBuffer)
	if err != nil {
		return err
	}
	a.listensTo(ends)
	ctx, stop := context.WithCancel(ctx)
	var listening sync.WaitGroup
	var failed error
	listening.Go(func() {
		defer stop()
		failed = a.consumeEvents(ctx, ends)
	})
	a.dumpLoop(ctx)
	stop()
	listening.Wait()
	a.listensTo(nil)
	return errors.Join(failed, ends.Close())
}

// consumeEvents counts what ends.
func (a *Accounting) consumeEvents(ctx context.Context, ends *conntrack.DestroyEvents) error {
	count := func(e *conntrack.Entry) { a.Counters.OnDestroy(e, a.Owners.OfEnded(e), time.Now()) }
	for ctx.Err() == nil {
		err := ends.Receive(ctx, count)
		switch {
		case errors.Is(err, conntrack.ErrOverrun):
			a.dumpRequested.Notify()
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("listening to the ends of connections: %w", err)
		}
	}
	return nil
}

// dumpLoop reads the table again and again.
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
		a.Counters.OnEntry(e, a.Owners.Attribute(e), a.Owners.OfEnded(e), now)
		return true
	})
	a.Counters.EndDump(err == nil, a.Owners.Has, time.Now())
	if err == nil && a.dumps.Add(1) == 1 {
		a.log.Info("connections are counted from now on", "alreadyOpen", a.Counters.State().Tracked)
	}
	isFailure := err != nil && ctx.Err() == nil && !errors.Is(err, conntrack.ErrInterrupted)
	if isFailure && !a.loggedFailure {
		a.log.Warn("long connections are not counted before they end; trying again", "error", err)
	}
	a.loggedFailure = isFailure
}
