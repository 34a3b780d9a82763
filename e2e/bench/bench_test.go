// Package bench measures the whole way from an event to the kernel, in network namespaces of its own. It needs root.
//
// Times of one machine say little about another, and less on a shared one. What compares is printed as a ratio: to the
// floor, which is the time the kernel takes for the same bytes when they lie ready.
package bench_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

var config = ruleset.Config{Families: model.Families}

// dial returns nftables of a new namespace.
func dial(b *testing.B) *nft.Conn {
	b.Helper()
	network, err := fabric.New()
	if err != nil {
		b.Fatalf("make a namespace (this needs root): %v", err)
	}
	node, err := network.AddNode("node")
	if err != nil {
		b.Fatal(err)
	}
	var conn *nft.Conn
	if err := node.Do(func() (err error) { conn, err = nft.Dial(nft.Options{Owned: true}); return err }); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(); network.Close() })
	return conn
}

// recorder keeps the first batch that is not empty, which is that of the first sync.
type recorder struct {
	*nft.Conn
	first *ruleset.Batch
}

func (r *recorder) Commit(ctx context.Context, batch ruleset.Batch) error {
	if r.first == nil && len(batch.Ops) > 0 {
		r.first = &batch
	}
	return r.Conn.Commit(ctx, batch)
}

// BenchmarkFirstSync takes a whole cluster in, from the objects to the accepted commit.
func BenchmarkFirstSync(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.String(), func(b *testing.B) {
			var syncs, floors []time.Duration
			var elements int
			var peak int64
			for b.Loop() {
				b.StopTimer()
				everything := size.cluster()
				kernel := &recorder{Conn: dial(b)}
				resetPeakMemory(b)
				before := memory(b, "VmRSS")
				b.StartTimer()
				started := time.Now()
				p := proxy.New("node", config, kernel)
				p.Apply(everything)
				report, err := p.Sync(b.Context())
				syncs = append(syncs, time.Since(started))
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				peak = max(peak, memory(b, "VmHWM")-before)
				elements = report.Added[model.IPv4]
				floors = append(floors, floor(b, *kernel.first))
				b.StartTimer()
			}
			ratio := float64(median(syncs)) / float64(median(floors))
			b.ReportMetric(ratio, "x-floor")
			b.ReportMetric(float64(elements)/median(syncs).Seconds(), "elements/s")
			results.first = append(results.first, firstSync{size, elements, median(syncs), median(floors), peak})
		})
	}
}

// floor returns how long the kernel takes for the same bytes, encoded beforehand.
func floor(b *testing.B, batch ruleset.Batch) time.Duration {
	b.Helper()
	conn := dial(b)
	encoded, err := conn.Encode(batch)
	if err != nil {
		b.Fatal(err)
	}
	if encoded.Size() == 0 {
		b.Fatal("the first sync sent nothing")
	}
	runtime.GC()
	started := time.Now()
	if err := conn.Send(b.Context(), encoded); err != nil {
		b.Fatal(err)
	}
	return time.Since(started)
}

// BenchmarkOneChange follows single events, each from the object to the accepted commit and the sweep behind it.
func BenchmarkOneChange(b *testing.B) {
	for _, event := range []struct {
		name   string
		change func(size, int) model.Change
	}{
		{"one endpoint replaced", size.change},
		{"one endpoint less or more", size.resize},
	} {
		for _, size := range sizes {
			b.Run(event.name+"/"+size.String(), func(b *testing.B) {
				p := proxy.New("node", config, dial(b))
				p.Apply(size.cluster())
				if _, err := p.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				var syncs []time.Duration
				var written int
				for round := 0; b.Loop(); round++ {
					const events = 5000
					for number := range events {
						change := event.change(size, round*events+number)
						started := time.Now()
						p.Apply(change)
						report, err := p.Sync(b.Context())
						syncs = append(syncs, time.Since(started))
						if err != nil {
							b.Fatal(err)
						}
						written = max(written, report.Added[model.IPv4]+report.Deleted[model.IPv4])
					}
				}
				slices.Sort(syncs)
				b.ReportMetric(percentile(syncs, 50).Seconds()*1e6, "p50-µs")
				b.ReportMetric(percentile(syncs, 99).Seconds()*1e6, "p99-µs")
				results.changes = append(results.changes, oneChange{event.name, size, written, percentile(syncs, 50), percentile(syncs, 99)})
			})
		}
	}
}

func median(times []time.Duration) time.Duration {
	return percentile(slices.Sorted(slices.Values(times)), 50)
}

func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

func resetPeakMemory(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	if err := writeFile("/proc/self/clear_refs", "5"); err != nil { // proc(5): makes VmHWM start anew
		b.Fatal(err)
	}
}
