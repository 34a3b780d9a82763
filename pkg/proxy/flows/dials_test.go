//go:build linux

package flows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// recorded is a table that records when it was read.
type recorded struct {
	entries map[netip.AddrPort]conntrack.Entry // by client
	reads   []time.Time
	fails   error
}

func (r *recorded) Dump(_ context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	r.reads = append(r.reads, time.Now())
	for _, e := range r.entries {
		if filter.Matches(&e) && !each(&e) {
			return 0, conntrack.ErrCutOff
		}
	}
	return 0, r.fails
}

func (r *recorded) Delete(e *conntrack.Entry) (bool, error) {
	_, isThere := r.entries[e.Client()]
	delete(r.entries, e.Client())
	return isThere, nil
}

// watching runs dials in a bubble, and returns when the table was read, since the time at which they began.
func watching(t *testing.T, table *recorded, during func(w *town)) (reads []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newTown(nil, "here", "10.244.1.1", "there", "10.244.2.1")
		<-w.reader.EndpointsLeft()
		time.Sleep(LookFor + time.Second) // from now on we know which endpoints leave
		began := time.Now()
		var running sync.WaitGroup
		running.Go(func() {
			NewDials(conntrack.NewLooks(table, nil), w.reader, isNodes).Run(ctx, func(_ Drawn, err error) {
				if !errors.Is(err, table.fails) {
					t.Errorf("reported %v, want %v", err, table.fails)
				}
			})
		})
		during(w)
		cancel()
		running.Wait()
		for _, at := range table.reads {
			reads = append(reads, at.Sub(began))
		}
	})
	return reads
}

func TestNobodyLooksUnlessAnEndpointLeft(t *testing.T) {
	reads := watching(t, &recorded{}, func(w *town) {
		time.Sleep(time.Hour)
		w.synced()
		w.serve("here", "10.244.1.1", "there", "10.244.2.1", "there", "10.244.2.2")
		time.Sleep(time.Hour)
	})
	if len(reads) != 0 {
		t.Errorf("the table was read after %v, though no endpoint left", reads)
	}
}

func TestAfterAnEndpointLeftLooksGoOnForTwoMinutes(t *testing.T) {
	table := &recorded{}
	reads := watching(t, table, func(w *town) {
		w.serve("here", "10.244.1.1")
		time.Sleep(time.Hour)
	})
	if len(reads) < 3 || reads[0] != 0 || reads[1] != lookSoon || reads[2] != lookSoon+lookLater {
		t.Fatalf("the table was read after %v, want at once, after %s, and every %s", reads, lookSoon, lookLater)
	}
	if last := reads[len(reads)-1]; last < LookFor-lookLater || last > LookFor+lookLater || len(reads) > 30 {
		t.Errorf("the table was read %d times, at last after %s; want until %s", len(reads), last, LookFor)
	}
}

// TestWhatHappensBeforeALookBeginsIsPartOfIt: endpoints leave and flows are noted while another user looks.
func TestWhatHappensBeforeALookBeginsIsPartOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newTown(nil, "here", "10.244.1.1", "there", "10.244.2.1", "there", "10.244.2.2")
		<-w.reader.EndpointsLeft()
		time.Sleep(LookFor + time.Second) // from now on we know which endpoints leave
		table, looked, done := &slow{}, 0, make(chan []conntrack.Filter, 1)
		looks := conntrack.NewLooks(table, func(conntrack.Look) {
			if looked++; looked == 2 {
				done <- slices.Clone(table.dumps[1:])
			}
		})
		reconciler := NewReconciler(looks, isNodes)
		var running sync.WaitGroup
		running.Go(func() {
			_, _ = looks.Dump(ctx, conntrack.Filter{Protocol: model.SCTP}, func(*conntrack.Entry) bool { return true })
		})
		synctest.Wait()
		running.Go(func() { NewDials(looks, w.reader, isNodes).Run(ctx, func(Drawn, error) {}) })
		running.Go(func() { reconciler.Run(ctx, func(map[model.Family]Pass, error) {}) })
		for _, stays := range [][]string{{"here", "10.244.1.1", "there", "10.244.2.1"}, {"here", "10.244.1.1"}} {
			w.serve(stays...)
			reconciler.Note(list(frontend([]string{service4, service6}[len(stays)/4])), clusterScope)
			synctest.Wait()
		}
		flows, dials := 0, 0
		for _, filter := range <-done {
			if filter.Protocol == model.UDP && filter.Family == conntrack.BothFamilies {
				flows++
			}
			if filter.Protocol == 0 && len(filter.Answerers) == 2 {
				dials++
			}
		}
		if flows != 1 || dials != 1 {
			t.Errorf("the second look was %d times for the flows of both families, and %d times for both endpoints, want once", flows, dials)
		}
		cancel()
		running.Wait()
	})
}

// slow is an empty table that takes its time.
type slow struct{ dumps []conntrack.Filter }

func (s *slow) Dump(_ context.Context, filter conntrack.Filter, _ func(*conntrack.Entry) bool) (time.Duration, error) {
	s.dumps = append(s.dumps, filter)
	time.Sleep(time.Second)
	return time.Second, nil
}

func (s *slow) Delete(*conntrack.Entry) (bool, error) { return false, nil }

func TestALookThatFailsIsRepeatedSoon(t *testing.T) {
	table := &recorded{fails: conntrack.ErrInterrupted}
	reads := watching(t, table, func(w *town) {
		w.serve("here", "10.244.1.1")
		time.Sleep(5500 * time.Millisecond)
	})
	if len(reads) != 6 {
		t.Errorf("the table was read after %v, want every second", reads)
	}
}

func TestWhatIsMoreThanALookReadsGoesWithTheNext(t *testing.T) {
	table := &recorded{entries: map[netip.AddrPort]conntrack.Entry{}}
	for i := range 2 * unansweredAtMost {
		client := fmt.Sprintf("[fd00:244::9:%d]:%d", i>>15, 1000+i&0x7fff)
		table.entries[netip.MustParseAddrPort(client)] = dial(client, "[fd00:96::a]:80", "[fd00:244::2]:8080")
	}
	reads := watching(t, table, func(w *town) {
		w.serve("here", "10.244.1.1", "there", "fd00:244::2")
		w.serve("here", "10.244.1.1")
		time.Sleep(20 * time.Second)
	})
	if len(table.entries) != 0 {
		t.Errorf("%d dials are left after %v", len(table.entries), reads)
	}
}

// TestDialsInTheKernel, long after the start: a few endpoints leave, or many, in both families and protocols.
func TestDialsInTheKernel(t *testing.T) {
	namespace := netns.New(t)
	table := connections.Open(t, namespace)
	var conn *conntrack.Conn
	namespace.Do(func() {
		var err error
		if conn, err = conntrack.Dial(); err != nil {
			t.Fatal(err)
		}
	})
	defer func() { _ = conn.Close() }()
	for _, leaving := range []int{1, 20} {
		for _, family := range model.Families {
			t.Run(fmt.Sprintf("%d of %s", leaving, family), func(t *testing.T) { dialsInTheKernel(t, conn, table, family, leaving) })
		}
	}
}

func dialsInTheKernel(t *testing.T, conn *conntrack.Conn, table *connections.Table, family model.Family, leaving int) {
	addr, dialled, client := netip.MustParseAddr("10.244.2.1"), "10.96.0.10:80", netip.MustParseAddr("10.244.9.9")
	if family == model.IPv6 {
		addr, dialled, client = netip.MustParseAddr("fd00:244::2:1"), "[fd00:96::a]:80", netip.MustParseAddr("fd00:244::9:9")
	}
	stays := []string{"here", "10.244.1.1", "here", "fd00:244::1:1"}
	leaves := stays
	port := uint16(1000)
	insert := func(edit func(*connections.Connection), answerer netip.Addr) {
		for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
			port++
			c := connections.Connection{
				Protocol: protocol, Client: netip.AddrPortFrom(client, port), Dialled: netip.MustParseAddrPort(dialled),
				Answerer: netip.AddrPortFrom(answerer, townServing), State: 1, Label: label,
			}
			edit(&c)
			table.Insert(c)
		}
	}
	alive, kept := netip.MustParseAddr(stays[1]), 0
	if family == model.IPv6 {
		alive = netip.MustParseAddr(stays[3])
	}
	for range leaving {
		leaves = append(leaves, "there", addr.String())
		for _, one := range []struct {
			stays bool
			edit  func(*connections.Connection)
		}{
			{false, func(*connections.Connection) {}},
			{true, func(c *connections.Connection) { c.IsAnswered, c.State = true, 3+uint8(c.Protocol)/model132 }},      // established
			{false, func(c *connections.Connection) { c.IsAnswered, c.State = true, 8-7*(uint8(c.Protocol)/model132) }}, // closed
			{true, func(c *connections.Connection) { c.Label = 0 }},
			{true, func(c *connections.Connection) { c.Zone = 3 }},
		} {
			insert(one.edit, addr)
			if one.stays {
				kept += 2
			}
		}
		addr = addr.Next()
	}
	insert(func(*connections.Connection) {}, alive)
	kept += 2
	w := newTown(nil, leaves...)
	d := NewDials(conntrack.NewLooks(conn, nil), w.reader, isNodes)
	d.now = func() time.Time { return time.Now().Add(LookFor - 10*time.Second) } // by then we know which endpoints have left
	w.reader.Snapshot().Since = time.Now().Add(-LookFor)
	w.serve(stays...)
	drawn, err := d.Look(t.Context())
	for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
		if drawn.Anew[protocol] != leaving || drawn.Closed[protocol] != leaving || err != nil || drawn.CutOff {
			t.Errorf("%s: %+v, %v; want %d drawn anew, and as many that were closed forgotten", protocol, drawn, err, leaving)
		}
	}
	left := 0
	_, err = conn.Dump(t.Context(), conntrack.Filter{}, func(e *conntrack.Entry) bool {
		left++
		_, _ = conn.Delete(e)
		return true
	})
	if left != kept || err != nil {
		t.Errorf("%d entries are left, %v; want %d", left, err, kept)
	}
}

// model132 is SCTP's number, for states that differ by protocol.
const model132 = uint8(model.SCTP)
