package bench_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// measured has the times of events on Services of one type, and the largest number of written elements.
type measured struct {
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
				found := map[serviceType]*measured{}
				for _, each := range serviceTypes {
					found[each] = &measured{}
				}
				for iteration := 0; b.Loop(); iteration++ {
					for round := range event.times {
						event.measure(b, p, size, iteration*event.times+round, found)
					}
				}
				recordChange(b, event, size, found)
			})
		}
	}
}

// measure measures the event once.
func (e event) measure(b *testing.B, p *syncer.Proxy, s size, round int, found map[serviceType]*measured) {
	b.Helper()
	number := e.number(s, round)
	change := e.change(s, number, round)
	started := time.Now()
	p.Apply(change)
	report := sync(b, p)
	took := time.Since(started)
	entry := found[s.typeOf(number)]
	entry.times = append(entry.times, took)
	entry.written = max(entry.written, written(report))
}

func written(report syncer.Report) int { return report.Added[model.IPv4] + report.Deleted[model.IPv4] }

// recordChange adds rows to the table: one for all Services, and in a mix one for each type.
func recordChange(b *testing.B, e event, s size, found map[serviceType]*measured) {
	b.Helper()
	var all measured
	for _, each := range serviceTypes {
		all.times = append(all.times, found[each].times...)
		all.written = max(all.written, found[each].written)
	}
	if e.needs == onlyClusterIP && s.mix {
		checkShares(b, found, len(all.times))
	}
	slices.Sort(all.times)
	b.ReportMetric(percentile(all.times, 50).Seconds()*1e6, "p50-µs")
	b.ReportMetric(percentile(all.times, 99).Seconds()*1e6, "p99-µs")
	results.changes = append(results.changes, oneChange{event: e.name, cluster: s.String(), measured: all})
	for _, each := range serviceTypes {
		if times := found[each].times; s.mix && len(times) > 0 && len(times) < len(all.times) {
			slices.Sort(times)
			results.changes = append(results.changes, oneChange{event: "  of type " + string(each), cluster: s.String(), measured: *found[each]})
		}
	}
}

// checkShares fails unless the share of events on each type equals the share of its Services.
func checkShares(b *testing.B, found map[serviceType]*measured, all int) {
	b.Helper()
	for of, parts := range map[serviceType]int{onlyClusterIP: mixOf - exposedOf, nodePort: nodePortsOf, loadBalancer: 1} {
		want, got := all*parts/mixOf, len(found[of].times)
		if off := got - want; off < -all/100 || off > all/100 {
			b.Errorf("%d of %d events hit Services of type %s, want about %d", got, all, of, want)
		}
	}
}
