package demand_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Endpoints of the tests with loops: how long an idle one takes for an answer, in seconds, how many times as long at most, and
// how many answers a second it has.
const (
	idle, slowest = 0.02, 50
	capacity      = 60
	// thinking is how many seconds a client has its answer before it asks again, and patience how many it waits for one.
	thinking, requestTimeout = 0.2, 0.25
)

// loop is what clients do with the answers, or without.
type loop struct {
	name string
	// demand returns how much more or less often clients ask than at idle endpoints, if the one they ask is so much loaded.
	demand        func(load float64) float64
	demandChanges bool // clients that fail
}

// latency is that of an endpoint with so much load, in seconds.
func latency(load float64) float64 {
	if load >= 1-1./slowest {
		return idle * slowest
	}
	return idle / (1 - load)
}

var loops = []loop{
	{"they wait for answers", func(load float64) float64 { return (thinking + idle) / (thinking + latency(load)) }, false},
	{"they wait for a time", func(load float64) float64 { return (thinking + idle) / (thinking + min(latency(load), requestTimeout)) }, false},
	{"they try again twice", func(load float64) float64 {
		refused := max(0, 1-1/max(load, 1))
		return 1 + refused + refused*refused
	}, true},
}

// sixOneOne is a cluster whose three zones have as many nodes each, and six, one and one endpoints.
func sixOneOne() (nodes map[string]map[string]string, endpoints []model.PortEndpoint) {
	nodes = map[string]map[string]string{}
	for _, zone := range []string{"a", "b", "c"} {
		nodes["node-"+zone] = map[string]string{string(policy.Zone): zone}
	}
	for i, zone := range []string{"a", "a", "a", "a", "a", "a", "b", "c"} {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8080)
		endpoints = append(endpoints, model.PortEndpoint{Addr: addr, Endpoint: model.Endpoint{Zone: zone, Ready: true, Serving: true}})
	}
	return nodes, endpoints
}

// shares returns what each zone's nodes give to each endpoint, if they plan for some demand.
func shares(inForce map[string]float64) map[string][]float64 {
	nodes, endpoints := sixOneOne()
	cells := balance.NewNodeClasses([]policy.Key{policy.Zone, policy.AnyNode}, "")
	asks := map[string]uint32{}
	for name, labels := range nodes {
		cells.Set(name, labels)
		asks[labels[string(policy.Zone)]] = uint32(inForce[labels[string(policy.Zone)]] * 1e6)
	}
	measured, _ := cells.Measured(asks)
	zoneOf := func(e *model.PortEndpoint, key policy.Key) (string, bool) { return e.Zone, key == policy.Zone }
	plan := balance.NewPlan(measured, balance.NewEndpointClasses([]policy.Key{policy.Zone, policy.AnyNode}, endpoints, zoneOf), 100*bound)
	all := map[string][]float64{}
	for name, labels := range nodes {
		share := plan.Share(name, labels)
		parts := make([]float64, len(endpoints))
		for i := range parts {
			parts[i] = float64(share.Parts[i]) / balance.One
		}
		all[labels[string(policy.Zone)]] = parts
	}
	return all
}

// settle returns how often each zone asks, and what each endpoint gets of it, when clients have found their pace: an interval is
// long compared with an answer. Loads are those of the pace before, and are returned.
func settle(l loop, offered map[string]float64, shares map[string][]float64, loads []float64) (asked map[string]float64, got []float64) {
	for range 200 {
		asked, got = map[string]float64{}, make([]float64, len(loads))
		for _, zone := range slices.Sorted(maps.Keys(offered)) {
			pace := 0.0
			for i, part := range shares[zone] {
				pace += part * l.demand(loads[i])
			}
			asked[zone] = offered[zone] * pace
			for i, part := range shares[zone] {
				got[i] += part * asked[zone]
			}
		}
		for i := range loads {
			loads[i] += 0.05 * (got[i]/capacity - loads[i])
		}
	}
	return asked, got
}

// TestLoopsComeToRest: what clients ask depends on their answers, and so on the plan. It changes how much they ask, and the plan
// holds the bound for any of it. Load is up to 1.3 times what all endpoints can do. Most of what moves is chance.
func TestLoopsComeToRest(t *testing.T) {
	alike := map[string]float64{"a": 1. / 3, "b": 1. / 3, "c": 1. / 3}
	placements := map[string]map[string]float64{"as assumed": alike, "one zone 80 %": {"a": 0.1, "b": 0.8, "c": 0.1}}
	for _, l := range loops {
		for placement, parts := range placements {
			for _, load := range []float64{0.5, 0.7, 0.9, 1, 1.1, 1.3} {
				busiest, late, moves := 1.22, 2, 0.0075
				if l.demandChanges && placement != "as assumed" && load >= 1 {
					// What the nodes of zone c send to its endpoint, and send again, leaves the more room there for others the
					// less it is. At exactly full load that swings: followed at once it did so for ever, and gave 1.46.
					busiest, late, moves = 1.30, 30, 0.04
				}
				t.Run(fmt.Sprintf("%s, %s, load %g", l.name, placement, load), func(t *testing.T) {
					for seed := range uint64(2) {
						w := newWorld(seed, shapes()["6-1-1"], alike)
						got := w.loop(l, parts, load*8*capacity)
						t.Logf("%+v", got)
						if !(got.busiest <= busiest) || got.published > late || got.moves > moves {
							t.Errorf("seed %d, in the last half hour: %+v, want %.2f, %d and %.4f at most", seed, got, busiest, late, moves)
						}
					}
				})
			}
		}
	}
}

// looped is what happens in the last half hour: the load of the busiest endpoint relative to the mean, how often parts were
// published, and how far the part of zone b moves.
type looped struct {
	busiest   float64
	published int
	moves     float64
}

// loop lets clients of zones, who would ask so often of idle endpoints, do that for two hours.
func (w *world) loop(l loop, parts map[string]float64, rate float64) looped {
	offered, loads := map[string]float64{}, make([]float64, 8)
	for zone, part := range parts {
		offered[zone] = rate * part
	}
	found, least, most := looped{}, 1.0, 0.0
	for w.now < 2*time.Hour {
		asked, got := settle(l, offered, shares(w.published), loads)
		all := 0.0
		for _, zone := range slices.Sorted(maps.Keys(asked)) {
			all += asked[zone]
		}
		for zone := range asked {
			asked[zone] /= all
		}
		if w.now >= 90*time.Minute {
			found.busiest = max(found.busiest, slices.Max(got)/all*float64(len(got)))
			least, most = min(least, w.published["b"]), max(most, w.published["b"])
		}
		w.step(all, asked)
	}
	found.published, found.moves = w.publishedSince(90*time.Minute), most-least
	return found
}
