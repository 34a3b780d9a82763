package bench_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// samples has the times of events on Services of one type, and the largest number of written elements.
type samples struct {
	times   []time.Duration
	written int
}

// BenchmarkOneChange measures single events, each from the object to the accepted commit and the cleanup after it.
func BenchmarkOneChange(b *testing.B) {
	for _, event := range events {
		for _, size := range requestedSizes() {
			if event.needs != onlyClusterIP && !size.mix {
				continue
			}
			b.Run(event.name+"/"+size.String(), func(b *testing.B) {
				p := newMachine(b).proxyOf(size.cluster())
				sync(b, p)
				runtime.GC()
				byType := map[serviceType]*samples{}
				for _, kind := range serviceTypes {
					byType[kind] = &samples{}
				}
				for iteration := 0; b.Loop(); iteration++ {
					for round := range event.samples {
						event.measure(b, p, size, iteration*event.samples+round, byType)
					}
				}
				recordChange(b, event, size, byType)
			})
		}
	}
}

// measure measures the event once.
func (e event) measure(b *testing.B, p *syncer.Proxy, s size, round int, byType map[serviceType]*samples) {
	b.Helper()
	number := e.number(s, round)
	change := e.change(s, number, round)
	started := time.Now()
	p.Apply(change)
	report := sync(b, p)
	took := time.Since(started)
	entry := byType[s.typeOf(number)]
	entry.times = append(entry.times, took)
	entry.written = max(entry.written, written(report))
}

func written(report syncer.Report) int { return report.Added[model.IPv4] + report.Deleted[model.IPv4] }

// recordChange adds rows to the table: one for all Services, and in a mix one for each type.
func recordChange(b *testing.B, e event, s size, byType map[serviceType]*samples) {
	b.Helper()
	var all samples
	for _, kind := range serviceTypes {
		all.times = append(all.times, byType[kind].times...)
		all.written = max(all.written, byType[kind].written)
	}
	if e.needs == onlyClusterIP && s.mix {
		checkTypeShares(b, byType, len(all.times))
	}
	slices.Sort(all.times)
	b.ReportMetric(percentile(all.times, 50).Seconds()*1e6, "p50-µs")
	b.ReportMetric(percentile(all.times, 99).Seconds()*1e6, "p99-µs")
	results.changes = append(results.changes, changeRow{event: e.name, cluster: s.String(), samples: all})
	for _, kind := range serviceTypes {
		if times := byType[kind].times; s.mix && len(times) > 0 && len(times) < len(all.times) {
			slices.Sort(times)
			results.changes = append(results.changes, changeRow{event: "  of type " + string(kind), cluster: s.String(), samples: *byType[kind]})
		}
	}
}

// checkTypeShares fails unless the share of events on each type equals the share of its Services.
func checkTypeShares(b *testing.B, byType map[serviceType]*samples, all int) {
	b.Helper()
	for kind, share := range map[serviceType]int{onlyClusterIP: mixSize - exposedInMix, nodePort: nodePortsInMix, loadBalancer: 1} {
		want, got := all*share/mixSize, len(byType[kind].times)
		if deviation := got - want; deviation < -all/100 || deviation > all/100 {
			b.Errorf("%d of %d events hit Services of type %s, want about %d", got, all, kind, want)
		}
	}
}
