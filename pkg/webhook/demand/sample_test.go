package demand

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
)

// TestSamplesHaveOpenConnectionsAndPairs also covers a node that has only open connections, and numbers that no node
// can have. A node that does not respond in a shorter interval keeps its rate.
func TestSamplesHaveOpenConnectionsAndPairs(t *testing.T) {
	var f Aggregator
	page := func(opened, open uint64) demandapi.Page {
		page := demandapi.Page{Cursor: "c", Duration: 30 * time.Second, Counts: map[string]uint64{}, Open: map[string]uint64{"shop/web": open}}
		if opened > 0 {
			page.Counts["shop/web"] = opened
		}
		return page
	}
	f.AddReport("a-0", midnight, page(30, 5))
	f.AddReport("a-1", midnight, page(60, 0))
	f.AddReport("b-0", midnight, page(0, 7))
	f.AddReport("c-0", midnight, page(1, math.MaxUint64))
	var nodes []cluster.Node
	for _, name := range []string{"a-0", "a-1", "b-0", "c-0"} {
		nodes = append(nodes, cluster.Node{Name: name, Zone: name[:1], Weight: 1, HasReadyProxy: true})
	}
	exists := func(name string) (Service, bool) { return Service{}, name == "shop/web" }
	unknown := page(30, 0)
	unknown.Open = nil
	f.AddReport("a-0", midnight, unknown) // the last open connections remain
	f.Aggregate(midnight, nodes, exists)
	for interval, want := range map[time.Duration]Sample{
		30 * time.Second: {
			Took: 30 * time.Second, Zones: map[string]float64{"a": 90, "b": 0, "c": 1}, Open: map[string]float64{"a": 5, "b": 7, "c": maxOpen},
			Pairs: 30*29 + 60*59,
		},
		15 * time.Second: {
			Took: 15 * time.Second, Zones: map[string]float64{"a": 45, "b": 0, "c": 0.5}, Open: map[string]float64{"a": 5, "b": 7, "c": maxOpen},
			Pairs: 15*14 + 30*29,
		},
	} {
		z := f.groupByZone(midnight, nodes, &Round{})
		got := z.sample(interval, f.sum(interval, z, exists)["shop/web"])
		got.Pairs = math.Round(got.Pairs*1e6) / 1e6 // rates have 24 bits
		for zone := range got.Zones {
			got.Zones[zone] = math.Round(got.Zones[zone]*1e6) / 1e6
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sample of %s (-want +got):\n%s", interval, diff)
		}
	}
	if got := (&zonedNodes{}).sample(time.Minute, nil); len(got.Zones)+len(got.Open) > 0 || got.Pairs != 0 {
		t.Errorf("sample without connections: %+v", got)
	}
}
