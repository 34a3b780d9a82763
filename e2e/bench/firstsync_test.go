package bench_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// recorder keeps the batches that are sent.
type recorder struct {
	*nft.Conn
	sent []ruleset.Batch
}

func (r *recorder) Commit(ctx context.Context, batch ruleset.Batch) error {
	if len(batch.Ops) > 0 {
		r.sent = append(r.sent, batch)
	}
	return r.Conn.Commit(ctx, batch)
}

// BenchmarkFirstSync takes a whole cluster in, from the objects to the accepted commit.
func BenchmarkFirstSync(b *testing.B) {
	for _, size := range asked() {
		b.Run(size.String(), func(b *testing.B) {
			row := firstSync{size: size}
			var syncs, floors []time.Duration
			for b.Loop() {
				b.StopTimer()
				machine := newMachine(b)
				everything := size.cluster().Then(machine.object())
				kernel := &recorder{Conn: machine.tables}
				resetPeakMemory(b)
				before := memory(b, "VmRSS")
				b.StartTimer()
				started := time.Now()
				p := proxy.New(ownNode, config, kernel, &machine.flows)
				p.Apply(everything)
				report, err := p.Sync(b.Context())
				syncs = append(syncs, time.Since(started))
				b.StopTimer()
				if err := errors.Join(err, report.Unswept); err != nil {
					b.Fatal(err)
				}
				row.peak = max(row.peak, memory(b, "VmHWM")-before)
				row.elements = report.Added[model.IPv4]
				floors = append(floors, floor(b, kernel.sent))
				b.StartTimer()
			}
			row.sync, row.floor = median(syncs), median(floors)
			row.undisturbed = ratio(slices.Min(syncs), slices.Min(floors))
			b.ReportMetric(ratio(row.sync, row.floor), "x-floor")
			b.ReportMetric(float64(row.elements)/row.sync.Seconds(), "elements/s")
			results.first = append(results.first, row)
		})
	}
}

// floor returns how long the kernel takes for the same bytes, encoded beforehand.
func floor(b *testing.B, batches []ruleset.Batch) time.Duration {
	b.Helper()
	if len(batches) != 1 {
		b.Fatalf("the first sync sent %d batches, want it to send one", len(batches))
	}
	conn := newMachine(b).tables
	encoded, err := conn.Encode(batches[0])
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
