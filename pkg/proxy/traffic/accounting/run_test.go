//go:build linux

package accounting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// counting runs Accounting on a namespace's connection table, all of whose connections belong to web.
type counting struct {
	t          *testing.T
	namespace  *netns.Namespace
	conn       *conntrack.Conn
	table      *connections.Table
	accounting *Accounting
}

func newCounting(t *testing.T, adapt func(*Kernel)) *counting {
	t.Helper()
	c := &counting{t: t, namespace: netns.New(t)}
	c.table = connections.Open(t, c.namespace)
	c.namespace.Do(func() {
		var err error
		if c.conn, err = conntrack.Dial(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = c.conn.Close() })
	kernel := Kernel{Table: c.conn, Subscribe: c.conn.Subscribe}
	if adapt != nil {
		adapt(&kernel)
	}
	c.accounting = New(Settings{}, indexOfWeb("10.96.0.10:80", "10.244.2.1:8080"), kernel, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.accounting.Run(ctx) // always nil
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// begin starts counting: all Services are synced.
func (c *counting) begin() {
	c.t.Helper()
	c.accounting.Index.OnSynced(selection.SyncState{})
	wait.Until(c.t, "the first dump", func() bool { return c.accounting.Dumps() > 0 })
}

func (c *counting) insert(count int) {
	c.t.Helper()
	client := addrPort("10.244.1.9:1").Addr()
	for i := range count {
		c.table.Insert(connections.Connection{
			Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(client, uint16(1000+i)), OrigDst: addrPort("10.96.0.10:80"),
			ReplySrc: addrPort("10.244.2.1:8080"),
			State:    conntrack.TCPEstablished, IsReplied: true,
			Label: ruleset.TranslatedLabel,
		})
	}
}

// destroyAll destroys all connections and returns their number.
func (c *counting) destroyAll() (ended int) {
	c.t.Helper()
	var all []conntrack.Entry
	collect := func(e *conntrack.Entry) bool { all = append(all, *e); return true }
	if _, err := c.conn.Dump(c.t.Context(), conntrack.Filter{}, collect); err != nil {
		c.t.Fatal(err)
	}
	for i := range all {
		deleted, err := c.conn.Delete(&all[i])
		if err != nil {
			c.t.Fatal(err)
		}
		if deleted {
			ended++
		}
	}
	return ended
}

// A burst of DESTROY events leaves no entry in the table, and triggers a dump.
func TestABurstIsCountedOrReportedAsLost(t *testing.T) {
	const burst = 5000
	release := make(chan struct{})
	c := newCounting(t, func(kernel *Kernel) {
		subscribe := kernel.Subscribe
		kernel.Subscribe = func(int) (*conntrack.DestroyEvents, error) { return subscribe(64 << 10) }
	})
	c.begin()
	dumps := c.accounting.Dumps()
	c.insert(burst)
	c.accounting.Counters.mutex.Lock() // this blocks the receiver of events
	go func() { <-release; c.accounting.Counters.mutex.Unlock() }()
	ended := c.destroyAll()
	if remaining := c.namespace.Exec("cat", "/proc/sys/net/netfilter/nf_conntrack_count"); strings.TrimSpace(remaining) != "0" {
		t.Errorf("%s entries remain in the table", remaining)
	}
	close(release)
	wait.Until(t, "lost events, and a dump", func() bool { return c.accounting.LostEvents() > 0 && c.accounting.Dumps() > dumps })
	wait.Success(t, "every event is counted or reported as lost", func() error {
		if got, lost := sum(c.accounting.Counters).Connections, c.accounting.LostEvents(); ended != burst || got == 0 || got+lost != burst {
			return fmt.Errorf("of %d ended connections %d are counted, and %d are reported as lost", ended, got, lost)
		}
		return nil
	})
}

// There is no subscription to events before the first sync, either.
func TestNothingIsDumpedBeforeServicesAreLoaded(t *testing.T) {
	var subscriptions atomic.Int32
	c := newCounting(t, func(kernel *Kernel) {
		kernel.Subscribe = func(int) (*conntrack.DestroyEvents, error) { subscriptions.Add(1); return nil, errors.New("no") }
	})
	time.Sleep(20 * time.Millisecond)
	if subscriptions.Load() != 0 {
		t.Error("subscribed before the first sync")
	}
	c.accounting.Index.OnSynced(selection.SyncState{})
	wait.Until(t, "an attempt", func() bool { return subscriptions.Load() == 1 })
}
