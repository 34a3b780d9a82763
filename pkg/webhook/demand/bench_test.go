package demand_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

// BenchmarkRound aggregates the demand of 5,000 nodes on 1,000 Services, where each node connects to some of them, or
// to all.
func BenchmarkRound(b *testing.B) {
	const services = 1000
	for _, perNode := range []int{50, services} {
		b.Run(fmt.Sprintf("each node connects to %d of %d Services", perNode, services), func(b *testing.B) {
			f := newTestCluster(2000, 2000, 1000)
			f.report(perNode, services) // the first round has no duration
			published := func(string) (demand.Service, bool) { return demand.Service{ShouldPublish: true}, true }
			f.aggregator.Aggregate(f.now, f.nodes, published)
			for b.Loop() {
				b.StopTimer()
				f.report(perNode, services)
				b.StartTimer()
				if round := f.aggregator.Aggregate(f.now, f.nodes, published); len(round.Decided) != services {
					b.Fatalf("%d decisions, want %d", len(round.Decided), services)
				}
			}
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			b.ReportMetric(float64(memory.HeapAlloc)/1e6, "MB-live")
			runtime.KeepAlive(f)
		})
	}
}

// report makes each node report ten connections in an interval to each of some Services.
func (c *testCluster) report(perNode, services int) {
	c.now = c.now.Add(interval)
	for nodeIndex, node := range c.nodes {
		page := demandapi.Page{Cursor: "c", Duration: interval, Counts: map[string]uint64{}}
		for i := range perNode {
			page.Counts[fmt.Sprintf("shop/web-%03d", (nodeIndex+i*services/perNode)%services)] = 10
		}
		c.aggregator.AddReport(node.Name, c.now, page)
	}
}
