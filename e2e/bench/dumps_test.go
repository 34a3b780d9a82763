package bench_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	tracked "github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// dumpRow has the times of one kind of dump of conntrack's table.
type dumpRow struct {
	table, query string
	read         int
	times        []time.Duration
	// floor are the times of dumps that match no entry, in the same run.
	floor []time.Duration
}

// maxEntries is the maximum number of unreplied entries that a dump reads.
const maxEntries = 8192

// BenchmarkDumps dumps conntrack's table as the daemon does, with few entries and many. The cost of a dump depends on
// the machine's hash buckets, which are the same in every namespace.
func BenchmarkDumps(b *testing.B) {
	for _, size := range []struct{ open, unanswered int }{{0, 0}, {10_000, 100}, {100_000, 200}, {0, 200_000}} {
		name := fmt.Sprintf("%d open, %d unreplied", size.open, size.unanswered)
		b.Run(name, func(b *testing.B) {
			d := newDumpBench(b, size.open, size.unanswered)
			var floor dumpRow
			rows := []dumpRow{
				{query: "unreplied"},
				{query: "of one endpoint"},
				{query: "UDP"},
				{query: "everything"},
			}
			for b.Loop() {
				d.dump(b, &floor, conntrack.Filter{Family: conntrack.OnlyIPv4, ReplySrcs: []netip.Addr{dumpEndpoint(250)}}, 0)
				d.dump(b, &rows[0], unrepliedFilter, maxEntries)
				d.dump(b, &rows[1], conntrack.Filter{Family: conntrack.OnlyIPv4, ReplySrcs: []netip.Addr{dumpEndpoint(7)}}, 0)
				d.dump(b, &rows[2], conntrack.Filter{Family: conntrack.OnlyIPv4, Protocol: model.UDP}, 0)
				d.dump(b, &rows[3], conntrack.Filter{}, 0)
			}
			for _, row := range rows {
				row.table, row.floor = name, floor.times
				results.looks = append(results.looks, row)
			}
			if unreplied, all := rows[0], rows[3]; unreplied.read == maxEntries && slices.Min(unreplied.times) > slices.Min(all.times)/4 {
				b.Errorf("a truncated dump takes %s and a full one %s, want less than a quarter", slices.Min(unreplied.times), slices.Min(all.times))
			}
		})
	}
}

var unrepliedFilter = conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}

// dumpBench is a namespace with the dumped table.
type dumpBench struct{ conn *conntrack.Conn }

func dumpEndpoint(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 244, 0, byte(1 + number)})
}

func newDumpBench(b *testing.B, open, unreplied int) dumpBench {
	b.Helper()
	namespace := netns.New(b)
	table := tracked.Open(b, namespace)
	var d dumpBench
	namespace.Do(func() {
		var err error
		if d.conn, err = conntrack.Dial(); err != nil {
			b.Fatal(err)
		}
	})
	b.Cleanup(func() { _ = d.conn.Close() })
	for i := range open + unreplied {
		client := netip.AddrFrom4([4]byte{10, 245, byte(i >> 22), byte(i >> 14)})
		c := tracked.Connection{
			Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(client, uint16(1024+i&0x3fff)),
			OrigDst: netip.MustParseAddrPort("10.96.0.10:80"), ReplySrc: netip.AddrPortFrom(dumpEndpoint(i%200), 8080),
			State: conntrack.TCPSynSent, Label: ruleset.TranslatedLabel,
		}
		if i >= unreplied {
			c.IsReplied, c.State = true, conntrack.TCPEstablished
		}
		table.Insert(c)
	}
	return d
}

func (d dumpBench) dump(b *testing.B, row *dumpRow, filter conntrack.Filter, limit int) {
	b.Helper()
	row.read = 0
	took, err := d.conn.Dump(b.Context(), filter, func(*conntrack.Entry) bool { row.read++; return row.read != limit })
	if err != nil && !errors.Is(err, conntrack.ErrTruncated) {
		b.Fatal(err)
	}
	row.times = append(row.times, took)
}

func printDumps(w io.Writer) {
	fmt.Fprint(w, "\nDumps of conntrack; the fastest one is the least disturbed by other load on the machine\n\n")
	fmt.Fprintln(w, "table\tfilter\tentries read\tfastest\tp50\tratio to an empty dump\t")
	for _, row := range results.looks {
		fastest := slices.Min(row.times)
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%.1f\t\n", row.table, row.query, row.read, fastest.Round(10*time.Microsecond),
			median(row.times).Round(10*time.Microsecond), ratio(fastest, slices.Min(row.floor)))
	}
}
