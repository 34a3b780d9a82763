//go:build linux

package conntrack_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// unreplied selects translated entries without a reply.
var unreplied = conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}

func TestAllEntriesAreRead(t *testing.T) {
	k := newKernel(t)
	want := map[netip.AddrPort]connections.Connection{}
	number := 58 // also the label; the labels are on both sides of bit 64, where the second word begins
	for _, family := range model.Families {
		for _, protocol := range model.Protocols {
			for _, c := range []connections.Connection{
				connection(protocol, family, number), replied(connection(protocol, family, number+1)),
			} {
				c.Label = uint8(number)
				k.table.Insert(c)
				want[c.OrigSrc], number = c, number+1
			}
		}
	}
	entries := k.list(conntrack.Filter{})
	if len(entries) != len(want) {
		t.Fatalf("%d entries were read, want %d", len(entries), len(want))
	}
	for _, e := range entries {
		c := want[e.OrigSrc()]
		if e.Protocol != c.Protocol || e.OrigDst() != c.OrigDst || e.ReplySrc() != c.ReplySrc || e.Reply.Destination != c.OrigSrc {
			t.Errorf("read %s, want %+v", &e, c)
		}
		if e.State != c.State || e.ID == 0 || e.Zone != 0 {
			t.Errorf("%s: read %+v, want the state %d, an ID and zone 0", &e, e, c.State)
		}
		if !e.HasLabel(c.Label) && c.Label != 0 || e.HasLabel(c.Label+1) {
			t.Errorf("%s: labels %x, want only label %d", &e, e.Labels, c.Label)
		}
		if e.Status&conntrack.DestinationNAT == 0 || (e.Status&conntrack.SeenReply != 0) != c.IsReplied {
			t.Errorf("%s: status %x, want a translated entry with replied: %t", &e, e.Status, c.IsReplied)
		}
	}
}

func TestTheKernelAndTheFilterAgree(t *testing.T) {
	k := newKernel(t)
	for _, family := range model.Families {
		for i, protocol := range model.Protocols {
			for n := range i + 1 {
				k.table.Insert(connection(protocol, family, n))
				k.table.Insert(replied(connection(protocol, family, 100+n)))
			}
		}
	}
	other := connection(model.TCP, model.IPv4, 500)
	other.ReplySrc = netip.MustParseAddrPort("10.244.2.2:8080")
	k.table.Insert(other)
	plain := connection(model.TCP, model.IPv4, 501)
	plain.ReplySrc = plain.OrigDst
	k.table.Insert(plain)
	one, two := netip.MustParseAddr("10.244.2.1"), netip.MustParseAddr("10.244.2.2")
	for name, c := range map[string]struct {
		filter conntrack.Filter
		want   int
	}{
		"all":                        {conntrack.Filter{}, 26},
		"a family":                   {conntrack.Filter{Family: conntrack.OnlyIPv6}, 12},
		"a protocol":                 {conntrack.Filter{Protocol: model.UDP}, 8},
		"a protocol of a family":     {conntrack.Filter{Family: conntrack.OnlyIPv4, Protocol: model.SCTP}, 6},
		"unreplied":                  {unreplied, 13},
		"translated":                 {conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT}, 25},
		"replies from an address":    {conntrack.Filter{ReplySrcs: []netip.Addr{one}}, 12},
		"replies from either of two": {conntrack.Filter{ReplySrcs: []netip.Addr{one, two}}, 13},
		"everything combined": {conntrack.Filter{
			Family: conntrack.OnlyIPv4, Protocol: model.UDP, ReplySrcs: []netip.Addr{one},
			Status: conntrack.DestinationNAT | conntrack.SeenReply, Mask: conntrack.DestinationNAT | conntrack.SeenReply,
		}, 2},
	} {
		if got := len(k.list(c.filter)); got != c.want {
			t.Errorf("%s: %d entries were read, want %d", name, got, c.want)
		}
	}
}

func TestADumpIsTruncated(t *testing.T) {
	k := newKernel(t)
	for n := range 3000 {
		k.table.Insert(connection(model.TCP, model.IPv4, n))
	}
	read := 0
	_, err := k.conn.Dump(t.Context(), unreplied, func(*conntrack.Entry) bool { read++; return read < 100 })
	if !errors.Is(err, conntrack.ErrTruncated) || read != 100 {
		t.Errorf("%d entries were read, %v; want 100 and ErrTruncated", read, err)
	}
	if got := len(k.list(unreplied)); got != 3000 {
		t.Errorf("the next dump has %d entries, want all 3000", got)
	}
}

func TestAnEntryIsDeletedAndNotItsSuccessor(t *testing.T) {
	k := newKernel(t)
	for _, family := range model.Families {
		for _, protocol := range model.Protocols {
			for _, zone := range []uint16{0, 7} {
				c := connection(protocol, family, 1)
				c.Zone = zone
				k.table.Insert(c)
				stale := k.list(conntrack.Filter{})
				if len(stale) != 1 || stale[0].Zone != zone {
					t.Fatalf("%s in zone %d: read %v", protocol, zone, stale)
				}
				if deleted, err := k.conn.Delete(&stale[0]); !deleted || err != nil {
					t.Errorf("%s in zone %d: deleted %t, %v", protocol, zone, deleted, err)
				}
				if deleted, err := k.conn.Delete(&stale[0]); deleted || err != nil {
					t.Errorf("%s in zone %d: deleted again %t, %v", protocol, zone, deleted, err)
				}
				for name, replacement := range replacementsOf(c) {
					k.table.Insert(replacement)
					if deleted, err := k.conn.Delete(&stale[0]); deleted || err != nil {
						t.Errorf("%s in zone %d: %s, which replaced it, was deleted: %t, %v", protocol, zone, name, deleted, err)
					}
					for _, e := range k.list(conntrack.Filter{}) {
						if deleted, err := k.conn.Delete(&e); !deleted || err != nil {
							t.Errorf("%s in zone %d: deleting %s by its own key: %t, %v", protocol, zone, name, deleted, err)
						}
					}
				}
			}
		}
	}
}

// replacementsOf returns connections that may replace a connection in the table once it has ended.
func replacementsOf(c connections.Connection) map[string]connections.Connection {
	elsewhere, plain, direct, reversed, otherFrontend := c, c, c, c, c
	elsewhere.ReplySrc = netip.AddrPortFrom(c.ReplySrc.Addr().Next(), c.ReplySrc.Port())
	plain.ReplySrc = plain.OrigDst
	direct.OrigDst = direct.ReplySrc
	reversed.OrigSrc, reversed.OrigDst, reversed.ReplySrc = c.ReplySrc, c.OrigSrc, c.OrigSrc
	otherFrontend.OrigDst = netip.AddrPortFrom(c.OrigDst.Addr().Next(), c.OrigDst.Port())
	return map[string]connections.Connection{
		"one of the same client to the right endpoint": elsewhere,
		"an untranslated one":                          plain,
		"one from the client to the endpoint itself":   direct,
		"one from the endpoint to the client":          reversed,
		"one to the same endpoint by another frontend": otherFrontend,
	}
}

func TestCountersAreRead(t *testing.T) {
	k := newKernel(t)
	k.namespace.Exec("sysctl", "-w", "net.netfilter.nf_conntrack_acct=1")
	k.namespace.Exec("bash", "-c", "echo hello > /dev/udp/127.0.0.1/9")
	entries := k.list(conntrack.Filter{})
	if len(entries) != 1 {
		t.Fatalf("read %v, want the datagram alone", entries)
	}
	want := conntrack.Counter{Packets: 1, Bytes: 20 + 8 + 6}
	if e := entries[0]; e.Sent != want || e.Received != (conntrack.Counter{}) {
		t.Errorf("counted %+v and %+v, want %+v and none", e.Sent, e.Received, want)
	}
}

// Closing a socket would wait for the kernel's cleanup after a change of nftables. After a truncated dump the next one
// gets another socket, because the kernel would continue the old dump.
func TestDumpsShareASocket(t *testing.T) {
	k := newKernel(t)
	for n := range 3000 {
		k.table.Insert(connection(model.UDP, model.IPv4, n))
	}
	k.list(conntrack.Filter{})
	before := openSockets(t)
	for range 3 {
		if got := len(k.list(conntrack.Filter{})); got != 3000 {
			t.Fatalf("%d entries were read, want 3000", got)
		}
	}
	if diff := cmp.Diff(before, openSockets(t)); diff != "" {
		t.Errorf("the sockets after one dump and after four (-one +four):\n%s", diff)
	}
	_, err := k.conn.Dump(t.Context(), conntrack.Filter{}, func(*conntrack.Entry) bool { return false })
	if truncated := openSockets(t); !errors.Is(err, conntrack.ErrTruncated) || len(truncated) != len(before)-1 {
		t.Errorf("%v; %d sockets are open after a truncated dump, want one less than %d", err, len(truncated), len(before))
	}
}

// openSockets returns the inodes of this process's sockets.
func openSockets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var sockets []string
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:") {
			sockets = append(sockets, target)
		}
	}
	slices.Sort(sockets)
	return sockets
}

func TestEverySocketIsClosed(t *testing.T) {
	k := newKernel(t)
	k.table.Insert(connection(model.UDP, model.IPv4, 1))
	k.list(conntrack.Filter{}) // leaves a socket for the next one
	before := openFiles(t)
	for range 10 {
		_, _ = k.conn.Dump(t.Context(), conntrack.Filter{}, func(*conntrack.Entry) bool { return false })
		k.list(conntrack.Filter{})
		k.namespace.Do(func() {
			c, err := conntrack.Dial()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Dump(t.Context(), conntrack.Filter{}, func(*conntrack.Entry) bool { return true }); err != nil {
				t.Error(err)
			}
			events, err := c.Subscribe(conntrack.EventBuffer)
			if err := errors.Join(err, events.Close(), c.Close()); err != nil {
				t.Error(err)
			}
			if _, err := c.Dump(t.Context(), conntrack.Filter{}, func(*conntrack.Entry) bool { return true }); err == nil {
				t.Error("Dump on a closed connection returned no error")
			}
		})
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDestroyEventsAreDelivered(t *testing.T) {
	k := newKernel(t)
	events, err := k.conn.Subscribe(conntrack.EventBuffer)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	for n := range 300 {
		k.table.Insert(replied(connection(model.TCP, model.IPv6, n)))
	}
	for _, e := range k.list(conntrack.Filter{}) {
		if _, err := k.conn.Delete(&e); err != nil {
			t.Fatal(err)
		}
	}
	received := 0
	onDestroy := func(e *conntrack.Entry) {
		if received++; e.Protocol != model.TCP || e.ReplySrc().Port() != 8080 || e.Status&conntrack.SeenReply == 0 {
			t.Errorf("unexpected destroy event of %+v", e)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Timeout)
	defer cancel()
	for received < 300 {
		if err := events.Receive(ctx, onDestroy); err != nil {
			t.Fatalf("after %d: %v", received, err)
		}
	}
	if lost, err := events.Lost(); received != 300 || lost != 0 || err != nil {
		t.Errorf("received %d destroy events, and lost %d (%v); want 300 and none", received, lost, err)
	}
}

// The kernel drops events that do not fit into the buffer, reports them as lost, and keeps no entry for them.
func TestASlowReaderKeepsNoEntry(t *testing.T) {
	k := newKernel(t)
	events, err := k.conn.Subscribe(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	for n := range 2000 {
		k.table.Insert(replied(connection(model.TCP, model.IPv4, n)))
	}
	for _, e := range k.list(conntrack.Filter{}) {
		if _, err := k.conn.Delete(&e); err != nil {
			t.Fatal(err)
		}
	}
	if count := k.namespace.Exec("cat", "/proc/sys/net/netfilter/nf_conntrack_count"); count != "0\n" {
		t.Errorf("%q entries are left in the table, want none", count)
	}
	lost, err := events.Lost()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Timeout)
	defer cancel()
	received := uint64(0)
	for received+lost < 2000 {
		err := events.Receive(ctx, func(*conntrack.Entry) { received++ })
		if err != nil && !errors.Is(err, conntrack.ErrOverrun) {
			t.Fatalf("received %d of 2000 destroy events, and %d were reported as lost: %v", received, lost, err)
		}
	}
	if received == 0 || lost == 0 || received+lost != 2000 {
		t.Errorf("received %d of 2000 destroy events, and %d were reported as lost; want some of both, and 2000 in total", received, lost)
	}
}

func TestReceiveEndsWithItsContext(t *testing.T) {
	k := newKernel(t)
	events, err := k.conn.Subscribe(conntrack.EventBuffer)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := events.Receive(ctx, func(*conntrack.Entry) {}); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
		t.Errorf("got %v, want the context's error", err)
	}
}
