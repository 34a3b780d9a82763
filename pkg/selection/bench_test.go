package selection

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// crowd is ten endpoints of one Service port, spread over three zones.
func crowd(hints bool) []model.PortEndpoint {
	endpoints := make([]model.PortEndpoint, 10)
	for i := range endpoints {
		endpoints[i] = model.PortEndpoint{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080),
			Endpoint: model.Endpoint{
				Node: fmt.Sprintf("node-%d", 1+i%4), Zone: string(rune('a' + i%3)), Ready: true, Serving: true,
			},
		}
		if hints {
			endpoints[i].HintZones = []string{endpoints[i].Zone}
		}
	}
	return endpoints
}

var benchmarks = []struct {
	name   string
	keys   string
	hints  bool
	chosen int
	allocs float64
}{
	{"all", "", false, 10, 0},
	{"hints", "", true, 4, 1},
	{"hostname-zone-any", "hostname zone *", false, 3, 1},
	{"rack-by-node-label", "rack *", false, 5, 1},
	{"any", "*", false, 10, 0},
}

func BenchmarkSelect(b *testing.B) {
	for _, benchmark := range benchmarks {
		service, endpoints, viewpoint := withKeys(model.Service{}, benchmark.keys), crowd(benchmark.hints), viewFrom(fleet)
		b.Run(benchmark.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := Select(&service, false, endpoints, viewpoint); len(got.Cluster.Endpoints) != benchmark.chosen {
					b.Fatalf("%d endpoints are chosen, want %d", len(got.Cluster.Endpoints), benchmark.chosen)
				}
			}
		})
	}
}

func TestSelectAllocatesAtMostOnceForAChoice(t *testing.T) {
	for _, benchmark := range benchmarks {
		service, endpoints, viewpoint := withKeys(model.Service{}, benchmark.keys), crowd(benchmark.hints), viewFrom(fleet)
		got := testing.AllocsPerRun(100, func() { Select(&service, false, endpoints, viewpoint) })
		if got != benchmark.allocs {
			t.Errorf("%s: %v allocations, want %v", benchmark.name, got, benchmark.allocs)
		}
	}
}

func TestAllEndpointsAreTheGivenSlice(t *testing.T) {
	endpoints := crowd(false)[:9]
	got := Select(&model.Service{}, false, endpoints, viewFrom(fleet)).Cluster.Endpoints
	if &got[0] != &endpoints[0] || cap(got) != len(endpoints) {
		t.Error("the choice of all endpoints is a copy, or an append to it could reach beyond them")
	}
}
