//go:build linux

package conntrackgc

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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// recordingTable is a table that records when it was read.
type recordingTable struct {
	entries map[netip.AddrPort]conntrack.Entry // by client address
	reads   []time.Time
	err     error
	failing []int // numbers of the reads that fail
	// testsStatus is set if the kernel checks entries before deletion.
	testsStatus bool
	// afterDump and beforeDelete are called unless they are nil.
	afterDump, beforeDelete func()
	// deleteErrs are the errors of the next deletions, in order.
	deleteErrs []error
}

func (r *recordingTable) Dump(_ context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	r.reads = append(r.reads, time.Now())
	for _, e := range r.entries {
		if filter.Matches(&e) && !each(&e) {
			return 0, conntrack.ErrTruncated
		}
	}
	if r.afterDump != nil {
		r.afterDump()
	}
	if slices.Contains(r.failing, len(r.reads)) {
		return 0, conntrack.ErrInterrupted
	}
	return 0, r.err
}

func (r *recordingTable) Get(e *conntrack.Entry) (conntrack.Entry, bool, error) {
	current, exists := r.entries[e.OrigSrc()]
	return current, exists && current.ID == e.ID, nil
}

func (r *recordingTable) DeleteUnreplied(entries []*conntrack.Entry) (deleted []*conntrack.Entry, err error) {
	if r.beforeDelete != nil {
		r.beforeDelete()
	}
	if !r.testsStatus {
		return nil, conntrack.ErrNoConditionalDelete
	}
	for _, e := range entries {
		if current, exists := r.entries[e.OrigSrc()]; exists && current.Status&conntrack.SeenReply == 0 {
			delete(r.entries, e.OrigSrc())
			deleted = append(deleted, e)
		}
	}
	return deleted, nil
}

func (r *recordingTable) Delete(e *conntrack.Entry) (bool, error) {
	if len(r.deleteErrs) > 0 {
		err := r.deleteErrs[0]
		if r.deleteErrs = r.deleteErrs[1:]; err != nil {
			return false, err
		}
	}
	_, exists := r.entries[e.OrigSrc()]
	delete(r.entries, e.OrigSrc())
	return exists, nil
}

// reconciler returns a Reconciler that has already scanned UDP flows.
func (c *testCluster) reconciler(table conntrack.Table) *Reconciler {
	r := NewReconciler(conntrack.NewDumpScheduler(table, nil), c.index, isLocalAddr)
	r.lastScanned = c.index.Snapshot().Number
	return r
}

// scanTimes runs a Reconciler in a synctest bubble. It returns when the table was read, relative to the start of
// during.
func scanTimes(t *testing.T, table *recordingTable, edit func(*model.Service), during func(tc *testCluster)) (reads []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tc := newTestCluster(edit, "here", "10.244.1.1", "there", "10.244.2.1")
		<-tc.index.Changed()
		time.Sleep(StaleEntryWindow + time.Second) // from now on removed endpoints are known
		began := time.Now()
		var running sync.WaitGroup
		running.Go(func() {
			tc.reconciler(table).Run(ctx, func(_ CleanupResult, err error) {
				if !errors.Is(err, table.err) && len(table.failing) == 0 {
					t.Errorf("reported %v, want %v", err, table.err)
				}
			})
		})
		during(tc)
		cancel()
		running.Wait()
		for _, at := range table.reads {
			reads = append(reads, at.Sub(began))
		}
	})
	return reads
}

func TestNoScanUnlessAnEndpointWasRemoved(t *testing.T) {
	reads := scanTimes(t, &recordingTable{}, nil, func(tc *testCluster) {
		time.Sleep(time.Hour)
		tc.synced()
		tc.serve("here", "10.244.1.1", "there", "10.244.2.1", "there", "10.244.2.2")
		time.Sleep(time.Hour)
	})
	if len(reads) != 0 {
		t.Errorf("the table was read after %v, although no endpoint was removed", reads)
	}
}

func TestScansContinueForTwoMinutesAfterAnEndpointWasRemoved(t *testing.T) {
	table := &recordingTable{}
	reads := scanTimes(t, table, nil, func(tc *testCluster) {
		tc.serve("here", "10.244.1.1")
		time.Sleep(time.Hour)
	})
	if len(reads) < 3 || reads[0] != 0 || reads[1] != shortRescan || reads[2] != shortRescan+longRescan {
		t.Fatalf("the table was read after %v, want at once, after %s, and every %s", reads, shortRescan, longRescan)
	}
	if last := reads[len(reads)-1]; last < StaleEntryWindow-longRescan || last > StaleEntryWindow+longRescan || len(reads) > 30 {
		t.Errorf("the table was read %d times, at last after %s; want until %s", len(reads), last, StaleEntryWindow)
	}
}

// Endpoints are removed while another user's dump runs.
func TestChangesBeforeAScanBeginsArePartOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tc := newTestCluster(ofUDP, "here", "10.244.1.1", "there", "10.244.2.1", "there", "10.244.2.2")
		<-tc.index.Changed()
		time.Sleep(StaleEntryWindow + time.Second) // from now on removed endpoints are known
		table, dumped, done := &slowTable{}, 0, make(chan []conntrack.Filter, 1)
		dumps := conntrack.NewDumpScheduler(table, func(conntrack.DumpStats) {
			if dumped++; dumped == 2 {
				done <- slices.Clone(table.dumps[1:])
			}
		})
		var running sync.WaitGroup
		running.Go(func() {
			_, _ = dumps.Dump(ctx, conntrack.Filter{Protocol: model.SCTP}, func(*conntrack.Entry) bool { return true })
		})
		synctest.Wait()
		running.Go(func() { NewReconciler(dumps, tc.index, isLocalAddr).Run(ctx, func(CleanupResult, error) {}) })
		for _, stays := range [][]string{{"here", "10.244.1.1", "there", "10.244.2.1"}, {"here", "10.244.1.1"}} {
			tc.serve(stays...)
			synctest.Wait()
		}
		forUDP, forBothEndpoints := 0, 0
		for _, filter := range <-done {
			if filter.Protocol == model.UDP && filter.Family == conntrack.BothFamilies {
				forUDP++
			}
			if filter.Protocol == 0 && len(filter.ReplySrcs) == 2 {
				forBothEndpoints++
			}
		}
		if forUDP != 1 || forBothEndpoints != 1 {
			t.Errorf("the second dump had %d queries for UDP flows, and %d for both endpoints, want one of each", forUDP, forBothEndpoints)
		}
		cancel()
		running.Wait()
	})
}

// slowTable is an empty table whose dumps take a while.
type slowTable struct {
	conntrack.Table // nothing is deleted
	dumps           []conntrack.Filter
}

func (s *slowTable) Dump(_ context.Context, filter conntrack.Filter, _ func(*conntrack.Entry) bool) (time.Duration, error) {
	s.dumps = append(s.dumps, filter)
	time.Sleep(time.Second)
	return time.Second, nil
}

// The second scan soon follows the first.
func TestAnUnrepliedConnectionIsDeletedAtTheSecondScan(t *testing.T) {
	table := &recordingTable{entries: map[netip.AddrPort]conntrack.Entry{
		netip.MustParseAddrPort(host): unrepliedEntry(host, "10.96.0.10:80", "10.244.2.1:8080"),
	}}
	reads := scanTimes(t, table, nil, func(tc *testCluster) {
		tc.serve("here", "10.244.1.1")
		time.Sleep(10 * time.Second)
	})
	want := []time.Duration{0, confirmInterval, confirmInterval + shortRescan, confirmInterval + shortRescan + longRescan}
	if !slices.Equal(reads, want) || len(table.entries) != 0 {
		t.Errorf("the table was read after %v, want %v; %d connections remain, want none", reads, want, len(table.entries))
	}
}

func TestAFailedScanIsRepeatedSoon(t *testing.T) {
	table := &recordingTable{err: conntrack.ErrInterrupted}
	reads := scanTimes(t, table, nil, func(tc *testCluster) {
		tc.serve("here", "10.244.1.1")
		time.Sleep(5500 * time.Millisecond)
	})
	if len(reads) != 6 {
		t.Errorf("the table was read after %v, want every second", reads)
	}
}

// This holds whether or not the kernel checks the status. Changes between the scans and after them count.
func TestAConnectionIsDeletedIfTwoScansFoundItUnrepliedAndItStillIs(t *testing.T) {
	const removed = "10.244.2.1:8080"
	type scene struct {
		*recordingTable
		*testCluster
	}
	client := netip.MustParseAddrPort(host)
	edit := func(change func(*conntrack.Entry)) func(scene) {
		return func(s scene) { s.entries[client] = with(s.entries[client], change) }
	}
	nothing := func(scene) {}
	replies := edit(inState(conntrack.TCPEstablished))
	endpointAdded := func(s scene) { s.serve("here", "10.244.1.1", "there", "10.244.2.1") }
	unreplied, closed := nothing, edit(inState(conntrack.TCPTimeWait))
	for name, test := range map[string]struct {
		begins, afterFirst, afterSecond, beforeDelete func(scene)
		apart                                         time.Duration
		want                                          CleanupResult
	}{
		"nothing changes":              {unreplied, nothing, nothing, nothing, confirmInterval, CleanupResult{Unreplied: oneOf(model.TCP)}},
		"the second scan is too early": {unreplied, nothing, nothing, nothing, confirmInterval - 1, CleanupResult{Pending: 1}},
		"a reply between the scans":    {unreplied, replies, nothing, nothing, confirmInterval, CleanupResult{}},
		"a reply after the second":     {unreplied, nothing, replies, nothing, confirmInterval, CleanupResult{}},
		"a reply just before deletion": {unreplied, nothing, nothing, replies, confirmInterval, CleanupResult{}},
		"another connection replaces it": {
			unreplied, edit(func(e *conntrack.Entry) { e.ID++ }), nothing, nothing, confirmInterval, CleanupResult{Pending: 1},
		},
		"its endpoint is added again between the scans": {unreplied, endpointAdded, nothing, nothing, confirmInterval, CleanupResult{}},
		"its endpoint is added again after the second":  {unreplied, nothing, endpointAdded, nothing, confirmInterval, CleanupResult{}},
		"a closed one is deleted at once":               {closed, nothing, nothing, nothing, 0, CleanupResult{Closed: oneOf(model.TCP)}},
		"its endpoint was removed, and it is closed between the scans": {
			unreplied, closed, nothing, nothing, confirmInterval, CleanupResult{Closed: oneOf(model.TCP)},
		},
	} {
		for _, testsStatus := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the kernel checks the status: %t", name, testsStatus), func(t *testing.T) {
				s := scene{&recordingTable{testsStatus: testsStatus}, newTestCluster(nil, "here", "10.244.1.1", "there", "10.244.2.1")}
				s.entries = map[netip.AddrPort]conntrack.Entry{client: unrepliedEntry(host, "10.96.0.10:80", removed)}
				test.begins(s)
				now := time.Now()
				s.index.Snapshot().RemovalsRecordedSince = now.Add(-StaleEntryWindow) // removed endpoints are known
				r := s.reconciler(s)
				r.now = func() time.Time { return now }
				s.serve("here", "10.244.1.1")
				s.beforeDelete = func() { test.beforeDelete(s) }
				total := CleanupResult{Unreplied: map[model.Protocol]int{}, Closed: map[model.Protocol]int{}}
				for _, after := range []func(scene){test.afterFirst, test.afterSecond} {
					s.afterDump = nil
					if len(s.reads) == 1 {
						s.afterDump = func() { after(s) }
					}
					result, err := r.CleanOnce(t.Context())
					if err != nil || result.Truncated {
						t.Errorf("%+v, %v", result, err)
					}
					if len(s.reads) == 1 {
						after(s)
					}
					for protocol, n := range result.Unreplied {
						total.Unreplied[protocol] += n
					}
					for protocol, n := range result.Closed {
						total.Closed[protocol] += n
					}
					total.Pending = result.Pending
					now = now.Add(test.apart)
				}
				if diff := cmp.Diff(test.want, total, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				if deleted := len(test.want.Unreplied) + len(test.want.Closed); len(s.entries) != 1-deleted {
					t.Errorf("%d entries remain, want %d", len(s.entries), 1-deleted)
				}
			})
		}
	}
}

// It is already known that the node does not reply.
func TestAConnectionToAnUnreachableNodeIsDeletedAtTheFirstScan(t *testing.T) {
	tc := newTestCluster(nil, "here", "10.244.1.1", "there", "10.244.2.1")
	table := &recordingTable{testsStatus: true, entries: map[netip.AddrPort]conntrack.Entry{
		netip.MustParseAddrPort(host): unrepliedEntry(host, "10.96.0.10:80", "10.244.2.1:8080"),
		netip.MustParseAddrPort(pod):  unrepliedEntry(pod, "10.96.0.10:80", "10.244.1.1:8080"),
	}}
	r := tc.reconciler(table)
	key := model.DemotionKey{Node: "there", Reason: model.Unreachable}
	tc.cluster.Apply(model.Change{Demotions: map[model.DemotionKey]*model.Demotion{key: {Reason: model.Unreachable}}})
	tc.synced()
	done, err := r.CleanOnce(t.Context())
	if err != nil || done.Unreplied[model.TCP] != 1 || done.Pending > 0 || len(table.entries) != 1 {
		t.Errorf("%+v, %v; %d entries remain, want 1 after 1 deletion", done, err, len(table.entries))
	}
}

// The connection was closed at the time of the dump.
func TestAClosedConnectionThatReopenedStays(t *testing.T) {
	tc := newTestCluster(nil, "here", "10.244.1.1", "there", "10.244.2.1")
	client := netip.MustParseAddrPort(host)
	closed := with(unrepliedEntry(host, "10.96.0.10:80", "10.244.2.1:8080"), inState(conntrack.TCPTimeWait))
	table := &recordingTable{entries: map[netip.AddrPort]conntrack.Entry{client: closed}}
	table.afterDump = func() { table.entries[client] = with(closed, inState(conntrack.TCPEstablished)) }
	r := NewReconciler(conntrack.NewDumpScheduler(table, nil), tc.index, isLocalAddr)
	r.now = func() time.Time { return time.Now().Add(StaleEntryWindow - time.Second) }
	tc.index.Snapshot().RemovalsRecordedSince = time.Now().Add(-StaleEntryWindow)
	tc.serve("here", "10.244.1.1")
	if result, err := r.CleanOnce(t.Context()); len(result.Closed) != 0 || len(table.entries) != 1 || err != nil {
		t.Errorf("%+v, %v; want that the connection stays", result, err)
	}
}

func oneOf(protocol model.Protocol) map[model.Protocol]int {
	return map[model.Protocol]int{protocol: 1}
}

// Connections that are not stale do not count towards maxDeletes.
func TestTheNextScanDeletesTheRestOfATruncatedOne(t *testing.T) {
	table := &recordingTable{entries: map[netip.AddrPort]conntrack.Entry{}}
	const others = 30_000
	for i := range 2*maxDeletes + others {
		client, replySrc := fmt.Sprintf("[fd00:244::9:%d]:%d", i>>15, 1000+i&0x7fff), "[fd00:244::2]:8080"
		if i < others {
			replySrc = "[fd00:244::1]:8080"
		}
		table.entries[netip.MustParseAddrPort(client)] = unrepliedEntry(client, "[fd00:96::a]:80", replySrc)
	}
	reads := scanTimes(t, table, nil, func(tc *testCluster) {
		tc.serve("here", "10.244.1.1", "there", "fd00:244::2", "here", "fd00:244::1")
		tc.serve("here", "10.244.1.1", "here", "fd00:244::1")
		time.Sleep(20 * time.Second)
	})
	if len(table.entries) != others {
		t.Errorf("%d connections remain after %v, want the %d whose endpoint serves", len(table.entries), reads, others)
	}
}

// inKernel returns the conntrack tables of a new network namespace, for the test and for the code under test.
func inKernel(t *testing.T) (table *connections.Table, conn *conntrack.Conn) {
	t.Helper()
	namespace := netns.New(t)
	table = connections.Open(t, namespace)
	namespace.Do(func() {
		var err error
		if conn, err = conntrack.Dial(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = conn.Close() })
	return table, conn
}

// Few or many endpoints are removed, in both families and protocols, long after the start.
func TestConnectionsInTheKernel(t *testing.T) {
	table, conn := inKernel(t)
	for _, leaving := range []int{1, 20} {
		for _, family := range model.Families {
			t.Run(fmt.Sprintf("%d of %s", leaving, family), func(t *testing.T) { checkConnectionsInKernel(t, conn, table, family, leaving) })
		}
	}
}

func checkConnectionsInKernel(t *testing.T, conn *conntrack.Conn, table *connections.Table, family model.Family, leaving int) {
	addr, origDst, client := netip.MustParseAddr("10.244.2.1"), "10.96.0.10:80", netip.MustParseAddr("10.244.9.9")
	if family == model.IPv6 {
		addr, origDst, client = netip.MustParseAddr("fd00:244::2:1"), "[fd00:96::a]:80", netip.MustParseAddr("fd00:244::9:9")
	}
	remainingEndpoints := []string{"here", "10.244.1.1", "here", "fd00:244::1:1"}
	allEndpoints := remainingEndpoints
	port := uint16(1000)
	insert := func(edit func(*connections.Connection), replySrc netip.Addr) {
		for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
			port++
			c := connections.Connection{
				Protocol: protocol, OrigSrc: netip.AddrPortFrom(client, port), OrigDst: netip.MustParseAddrPort(origDst),
				ReplySrc: netip.AddrPortFrom(replySrc, endpointPort), State: 1, Label: label,
			}
			edit(&c)
			table.Insert(c)
		}
	}
	alive, kept := netip.MustParseAddr(remainingEndpoints[1]), 0
	if family == model.IPv6 {
		alive = netip.MustParseAddr(remainingEndpoints[3])
	}
	for range leaving {
		allEndpoints = append(allEndpoints, "there", addr.String())
		for _, one := range []struct {
			stays bool
			edit  func(*connections.Connection)
		}{
			{false, func(*connections.Connection) {}},
			{true, func(c *connections.Connection) { c.IsReplied, c.State = true, 3+uint8(c.Protocol)/sctpNumber }},      // established
			{false, func(c *connections.Connection) { c.IsReplied, c.State = true, 8-7*(uint8(c.Protocol)/sctpNumber) }}, // closed
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
	tc := newTestCluster(nil, allEndpoints...)
	r := NewReconciler(conntrack.NewDumpScheduler(conn, nil), tc.index, isLocalAddr)
	r.now = func() time.Time { return time.Now().Add(StaleEntryWindow - 10*time.Second) } // by then removed endpoints are known
	tc.index.Snapshot().RemovalsRecordedSince = time.Now().Add(-StaleEntryWindow)
	tc.serve(remainingEndpoints...)
	first, err := r.CleanOnce(t.Context())
	if first.Pending != 2*leaving || len(first.Unreplied) != 0 || err != nil {
		t.Errorf("the first scan: %+v, %v; want it to find the unreplied connections and to delete none", first, err)
	}
	began := r.now()
	r.now = func() time.Time { return began.Add(confirmInterval) }
	result, err := r.CleanOnce(t.Context())
	result.Closed = first.Closed // deleted by the first scan
	for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
		if result.Unreplied[protocol] != leaving || result.Closed[protocol] != leaving || err != nil || result.Truncated {
			t.Errorf("%s: %+v, %v; want %d unreplied and as many closed entries deleted", protocol, result, err, leaving)
		}
	}
	remaining := 0
	_, err = conn.Dump(t.Context(), conntrack.Filter{}, func(e *conntrack.Entry) bool {
		remaining++
		_, _ = conn.Delete(e)
		return true
	})
	if remaining != kept || err != nil {
		t.Errorf("%d entries remain, %v; want %d", remaining, err, kept)
	}
}

// sctpNumber is SCTP's number, for states that differ by protocol.
const sctpNumber = uint8(model.SCTP)

// 30,000 other connections of each family are unreplied, too. Half of them lead to an endpoint that serves; another
// program translated the other half.
func TestAllStaleConnectionsNextToThoseOfOthersAreDeleted(t *testing.T) {
	const others, stale = 30_000, 450
	table, conn := inKernel(t)
	service := map[model.Family]string{model.IPv4: "10.96.0.10:80", model.IPv6: "[fd00:96::a]:80"}
	pods := map[model.Family]string{model.IPv4: "10.244.2.", model.IPv6: "fd00:244::2:"}
	insert := func(family model.Family, number int, replySrc string, label uint8) {
		client := netip.AddrFrom4([4]byte{10, 244, 9, byte(number >> 14)})
		if family == model.IPv6 {
			client = netip.AddrFrom16([16]byte{0xfd, 0, 2, 0x44, 15: byte(number >> 14)})
		}
		table.Insert(connections.Connection{
			Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(client, uint16(1000+number&0x3fff)), State: conntrack.TCPSynSent, Label: label,
			OrigDst: netip.MustParseAddrPort(service[family]), ReplySrc: netip.AddrPortFrom(netip.MustParseAddr(replySrc), endpointPort),
		})
	}
	for _, family := range model.Families {
		for n := range others {
			insert(family, n, pods[family]+"1", label*uint8(n%2))
		}
	}
	const leaving = conntrack.MaxFilteredReplySrcs + 1 // more than the kernel filters one by one
	remainingEndpoints := []string{"here", pods[model.IPv4] + "1", "here", pods[model.IPv6] + "1"}
	allEndpoints := slices.Clone(remainingEndpoints)
	for n := range leaving {
		for _, family := range model.Families {
			allEndpoints = append(allEndpoints, "there", pods[family]+fmt.Sprint(2+n))
		}
	}
	for name, sinceStart := range map[string]time.Duration{"at the start": 0, "later": StaleEntryWindow} {
		t.Run(name, func(t *testing.T) {
			for _, family := range model.Families {
				for n := range stale {
					insert(family, others+n, pods[family]+fmt.Sprint(2+n%leaving), label)
				}
			}
			tc := newTestCluster(nil, allEndpoints...)
			began := time.Now()
			tc.index.Snapshot().RemovalsRecordedSince = began.Add(-sinceStart)
			r := NewReconciler(conntrack.NewDumpScheduler(conn, nil), tc.index, isLocalAddr)
			tc.serve(remainingEndpoints...)
			deleted := 0
			for range 2 {
				result, err := r.CleanOnce(t.Context())
				if err != nil || result.Truncated {
					t.Errorf("%+v, %v", result, err)
				}
				deleted += result.Unreplied[model.TCP]
				r.now = func() time.Time { return began.Add(time.Since(began) + confirmInterval) }
			}
			remaining := 0
			if _, err := conn.Dump(t.Context(), conntrack.Filter{}, func(*conntrack.Entry) bool { remaining++; return true }); err != nil {
				t.Fatal(err)
			}
			if deleted != 2*stale || remaining != 2*others {
				t.Errorf("%d connections were deleted and %d remain, want %d and %d", deleted, remaining, 2*stale, 2*others)
			}
		})
	}
}
