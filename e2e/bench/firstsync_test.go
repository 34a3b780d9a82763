package bench_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// recorder keeps the sent batches.
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

// BenchmarkFirstSync measures the first sync of a whole cluster, from the objects to the accepted commit.
func BenchmarkFirstSync(b *testing.B) {
	for _, size := range requestedSizes() {
		b.Run(size.String(), func(b *testing.B) {
			row := firstSyncRow{size: size}
			var syncs, floors, inBatches []time.Duration
			for b.Loop() {
				b.StopTimer()
				machine := newMachine(b)
				everything := size.cluster().Merge(machine.nodeChange())
				kernel := &recorder{Conn: machine.tables}
				resetPeakMemory(b)
				before := memory(b, "VmRSS")
				b.StartTimer()
				started := time.Now()
				p := syncer.New(ownNode, config, kernel)
				p.Apply(everything)
				report, err := p.Sync(b.Context())
				syncs = append(syncs, time.Since(started))
				b.StopTimer()
				if err := errors.Join(err, report.CleanupErr); err != nil {
					b.Fatal(err)
				}
				expectBatches(b, kernel.sent)
				row.peak = max(row.peak, memory(b, "VmHWM")-before)
				row.elements = report.Added[model.IPv4]
				floors = append(floors, floor(b, mergeBatches(kernel.sent)))
				inBatches = append(inBatches, floor(b, kernel.sent...))
				b.StartTimer()
			}
			row.sync, row.floor, row.inBatches = median(syncs), median(floors), median(inBatches)
			row.fastestRatio = ratio(slices.Min(syncs), slices.Min(floors))
			b.ReportMetric(ratio(row.sync, row.floor), "x-floor")
			b.ReportMetric(float64(row.elements)/row.sync.Seconds(), "elements/s")
			results.first = append(results.first, row)
		})
	}
}

// expectBatches checks that chains are written only once, in the last batch.
func expectBatches(b *testing.B, batches []ruleset.Batch) {
	b.Helper()
	for i, batch := range batches {
		hasChains := slices.ContainsFunc(batch.Ops, func(op ruleset.Op) bool {
			_, isChain := op.Object.(ruleset.ChainObject)
			return isChain
		})
		if hasChains != (i == len(batches)-1) {
			b.Fatalf("batch %d of %d of the first sync has chains: %v", i+1, len(batches), hasChains)
		}
	}
	if len(batches) == 0 {
		b.Fatal("the first sync sent nothing")
	}
}

// mergeBatches returns one batch with the operations of several batches, in order.
func mergeBatches(batches []ruleset.Batch) ruleset.Batch {
	var all ruleset.Batch
	for _, batch := range batches {
		all.Ops, all.Weight = append(all.Ops, batch.Ops...), all.Weight+batch.Weight
	}
	return all
}

// floor returns the time that the kernel needs for batches that were encoded beforehand.
func floor(b *testing.B, batches ...ruleset.Batch) time.Duration {
	b.Helper()
	conn := newMachine(b).tables
	var all []*nft.Encoded
	for _, batch := range batches {
		encoded, err := conn.Encode(batch)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, encoded)
	}
	runtime.GC()
	started := time.Now()
	for _, encoded := range all {
		if err := conn.Send(b.Context(), encoded); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(started)
}
