//go:build linux

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// fakeTable is a table whose dumps take time.
type fakeTable struct {
	Table    // nil: the tests only dump
	entries  []Entry
	dumpTime time.Duration
	// cpuWait is the part of that time in which the reader waits for the CPU.
	cpuWait time.Duration
	err     error
	dumps   []Filter
}

func (f *fakeTable) Dump(_ context.Context, filter Filter, each func(*Entry) bool) (time.Duration, error) {
	f.dumps = append(f.dumps, filter)
	time.Sleep(f.dumpTime)
	for i := range f.entries {
		if filter.Matches(&f.entries[i]) && !each(&f.entries[i]) {
			return f.dumpTime, ErrTruncated
		}
	}
	return f.dumpTime, f.err
}

// newScheduler returns a scheduler whose CPU time is computed from the dumps of the table.
func newScheduler(table *fakeTable, onDump func(DumpStats)) *DumpScheduler {
	dumps := NewDumpScheduler(table, onDump)
	dumps.cpuTime = func() time.Duration { return time.Duration(len(table.dumps)) * (table.dumpTime - table.cpuWait) }
	return dumps
}

// newFakeTable returns a table with entries of both families: of UDP, and of TCP, replied and unreplied.
func newFakeTable(dumpTime time.Duration) *fakeTable {
	table := &fakeTable{dumpTime: dumpTime}
	for _, addr := range []string{"10.0.0.1", "fd00::1"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), 80)
		for _, status := range []Status{DestinationNAT, DestinationNAT | SeenReply} {
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				table.entries = append(table.entries, Entry{Protocol: protocol, Status: status, Original: Tuple{at, at}, Reply: Tuple{at, at}})
			}
		}
	}
	return table
}

var (
	udp         = Filter{Protocol: model.UDP}
	ipv6UDP     = Filter{Family: OnlyIPv6, Protocol: model.UDP}
	unreplied   = Filter{Status: DestinationNAT, Mask: DestinationNAT | SeenReply}
	translated  = Filter{Status: DestinationNAT, Mask: DestinationNAT}
	fromOneAddr = Filter{Status: DestinationNAT, Mask: DestinationNAT, ReplySrcs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
)

// Users that arrive during a dump share the next one. It queries the kernel once for each filter that no other covers.
func TestWaitersShareADump(t *testing.T) {
	for name, test := range map[string]struct {
		wanted []Filter
		dumps  []Filter // the kernel queries of the dump that they share
		counts []int
	}{
		"the same":                      {[]Filter{udp, udp, udp}, []Filter{udp}, []int{4, 4, 4}},
		"one covers the other":          {[]Filter{ipv6UDP, udp}, []Filter{udp}, []int{2, 4}},
		"in the other order":            {[]Filter{udp, ipv6UDP}, []Filter{udp}, []int{4, 2}},
		"by status and by reply source": {[]Filter{unreplied, fromOneAddr, translated}, []Filter{translated}, []int{4, 4, 8}},
		"one covers all":                {[]Filter{udp, unreplied, {}}, []Filter{{}}, []int{4, 4, 8}},
		"neither covers the other":      {[]Filter{udp, unreplied}, []Filter{udp, unreplied}, []int{4, 4}},
		"a third covers one of the two": {[]Filter{udp, unreplied, translated}, []Filter{udp, translated}, []int{4, 4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newFakeTable(10 * time.Millisecond)
				dumps := newScheduler(table, nil)
				var users sync.WaitGroup
				users.Go(func() { count(t, dumps, udp) })
				synctest.Wait()
				counts := make([]int, len(test.wanted))
				for i, filter := range test.wanted {
					users.Go(func() { counts[i] = count(t, dumps, filter) })
					synctest.Wait()
				}
				users.Wait()
				if diff := cmp.Diff(append([]Filter{udp}, test.dumps...), table.dumps, cmp.Comparer(sameAddrs)); diff != "" {
					t.Errorf("dumps (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.counts, counts); diff != "" {
					t.Errorf("entries (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func sameAddrs(a, b netip.Addr) bool { return a == b }

func count(t *testing.T, table Table, filter Filter) (n int) {
	if _, err := table.Dump(t.Context(), filter, func(*Entry) bool { n++; return true }); err != nil {
		t.Errorf("%+v: %v", filter, err)
	}
	return n
}

// TestDumpsCoolDown: continuous queries use 2 % of a core, and no user waits for longer than two seconds.
func TestDumpsCoolDown(t *testing.T) {
	for name, test := range map[string]struct {
		takes, waits time.Duration
		looks        int // in 100 s
	}{
		"an empty table":        {time.Millisecond, 0, 2000},
		"a table of most nodes": {20 * time.Millisecond, 0, 100},
		"a large table":         {110 * time.Millisecond, 0, 48},
		"a huge table":          {3 * time.Second, 0, 21},
		"a busy machine":        {104 * time.Millisecond, 100 * time.Millisecond, 333},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, reported := newFakeTable(test.takes), 0
				table.cpuWait = test.waits
				dumps := newScheduler(table, func(stats DumpStats) {
					if reported++; stats.Took != test.takes || stats.Truncated != 0 {
						t.Errorf("got %+v, want %s", stats, test.takes)
					}
				})
				for began := time.Now(); time.Since(began) < 100*time.Second; {
					count(t, dumps, udp)
				}
				if len(table.dumps) < test.looks-1 || len(table.dumps) > test.looks+1 || reported != len(table.dumps) {
					t.Errorf("%d dumps, %d reported; want %d", len(table.dumps), reported, test.looks)
				}
			})
		})
	}
}

func TestADumpAfterTheCooldownStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dumps := newScheduler(newFakeTable(time.Millisecond), nil)
		for range 3 {
			began := time.Now()
			count(t, dumps, udp)
			if waited := time.Since(began); waited != time.Millisecond {
				t.Errorf("it took %s, want only the dump", waited)
			}
			time.Sleep(cooldownFactor * time.Millisecond)
		}
	})
}

func TestACancelledQueryStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		truncated := 0
		table := newFakeTable(time.Millisecond)
		dumps := newScheduler(table, func(stats DumpStats) { truncated += stats.Truncated })
		count(t, dumps, udp)
		var users sync.WaitGroup
		users.Go(func() {
			seen := 0
			if _, err := dumps.Dump(t.Context(), udp, func(*Entry) bool { seen++; return seen < 2 }); !errors.Is(err, ErrTruncated) || seen != 2 {
				t.Errorf("saw %d entries, %v; want 2 and ErrTruncated", seen, err)
			}
		})
		users.Go(func() {
			if n := count(t, dumps, udp); n != 4 {
				t.Errorf("another one saw %d entries, want 4", n)
			}
		})
		users.Wait()
		if truncated != 1 {
			t.Errorf("%d queries were truncated, want 1", truncated)
		}
	})
}

func TestSeveralQueriesAreOneDump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dumped := 0
		table := newFakeTable(time.Millisecond)
		dumps := newScheduler(table, func(DumpStats) { dumped++ })
		counts := make([]int, 2)
		results, err := dumps.Query(t.Context(), func() []Query {
			return []Query{
				{udp, func(*Entry) bool { counts[0]++; return true }},
				{unreplied, func(*Entry) bool { counts[1]++; return counts[1] < 3 }},
			}
		})
		if len(results) != 2 || err != nil {
			t.Fatalf("%d results, %v; want 2", len(results), err)
		}
		for i, result := range results {
			if isTruncated := errors.Is(result.Err, ErrTruncated); isTruncated != (i == 1) {
				t.Errorf("query %d: %v", i, result.Err)
			}
		}
		if diff := cmp.Diff([]int{4, 3}, counts); diff != "" || dumped != 1 || len(table.dumps) != 2 {
			t.Errorf("%d shared dumps, want 1; %d kernel queries, want 2; entries (-want +got):\n%s", dumped, len(table.dumps), diff)
		}
	})
}

// No user waits for a second cooldown, and each provides its queries only when the dump starts. Without queries there
// is no dump.
func TestOneDumpServesAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dumped := 0
		table := newFakeTable(10 * time.Millisecond) // and a cooldown of 490
		dumps := newScheduler(table, func(DumpStats) { dumped++ })
		count(t, dumps, udp)
		var queries atomic.Pointer[[]Query]
		queries.Store(&[]Query{})
		var users sync.WaitGroup
		for range 20 {
			users.Go(func() {
				calls := 0
				results, err := dumps.Query(t.Context(), func() []Query { calls++; return *queries.Load() })
				if len(results) != 1 || err != nil || calls != 1 || dumped != 2 {
					t.Errorf("%d results, %v, queries taken %d times, at dump %d; want 1 at dump 2", len(results), err, calls, dumped)
				}
			})
			synctest.Wait()
		}
		queries.Store(&[]Query{{unreplied, func(*Entry) bool { return true }}})
		users.Wait()
		if diff := cmp.Diff([]Filter{udp, unreplied}, table.dumps); diff != "" {
			t.Errorf("dumps (-want +got):\n%s", diff)
		}
		if _, err := dumps.Query(t.Context(), func() []Query { return nil }); err != nil || len(table.dumps) != 2 || dumped != 2 {
			t.Errorf("after a call without queries: %v, %d kernel queries, %d shared dumps; want 2 and 2, as before",
				err, len(table.dumps), dumped)
		}
	})
}

func TestACancelledWaiterStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFakeTable(10 * time.Millisecond) // and a cooldown of 490
		dumps := newScheduler(table, nil)
		count(t, dumps, udp)
		var users sync.WaitGroup
		for range 2 { // the first one holds the token, the second waits for it
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			users.Go(func() {
				if _, err := dumps.Dump(ctx, translated, func(*Entry) bool { return true }); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want DeadlineExceeded", err)
				}
			})
			synctest.Wait()
		}
		users.Go(func() { count(t, dumps, udp) })
		users.Wait()
		if diff := cmp.Diff([]Filter{udp, udp}, table.dumps); diff != "" {
			t.Errorf("dumps (-want +got):\n%s", diff)
		}
	})
}

func TestAFailedDumpIsTheErrorOfAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newFakeTable(time.Millisecond)
		table.err = ErrInterrupted
		dumps := newScheduler(table, nil)
		var users sync.WaitGroup
		for range 3 {
			users.Go(func() {
				if _, err := dumps.Dump(t.Context(), udp, func(*Entry) bool { return true }); !errors.Is(err, ErrInterrupted) {
					t.Errorf("%v, want %v", err, ErrInterrupted)
				}
			})
		}
		users.Wait()
	})
}

func TestThreadCPUTimeExcludesSleep(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadCPUTime()
	time.Sleep(200 * time.Millisecond)
	if used := threadCPUTime() - before; used > 100*time.Millisecond {
		t.Errorf("a sleep of 200 ms used %v of CPU time", used)
	}
	for began := time.Now(); threadCPUTime()-before < 5*time.Millisecond; {
		if time.Since(began) > time.Minute {
			t.Fatal("work uses no CPU time")
		}
	}
}
