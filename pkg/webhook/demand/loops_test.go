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

// The endpoints in tests with feedback loops: idleLatency is the response time without load, in seconds, maxSlowdown is
// the maximum multiple of it, and capacity is the number of responses per second.
const (
	idleLatency, maxSlowdown = 0.02, 50
	capacity                 = 60
	// thinkTime is how many seconds a client waits between a response and its next request, and requestTimeout how many it
	// waits for a response.
	thinkTime, requestTimeout = 0.2, 0.25
)

// loop is how clients react to responses, or to missing ones.
type loop struct {
	name string
	// demand returns the clients' request rate at an endpoint with a given load, relative to the rate at idle endpoints.
	demand        func(load float64) float64
	demandChanges bool // set if failed requests change the demand
}

// latency returns the response time of an endpoint with a given load, in seconds.
func latency(load float64) float64 {
	if load >= 1-1./maxSlowdown {
		return idleLatency * maxSlowdown
	}
	return idleLatency / (1 - load)
}

var loops = []loop{
	{"clients wait for responses", func(load float64) float64 { return (thinkTime + idleLatency) / (thinkTime + latency(load)) }, false},
	{"clients time out", func(load float64) float64 {
		return (thinkTime + idleLatency) / (thinkTime + min(latency(load), requestTimeout))
	}, false},
	{"clients retry twice", func(load float64) float64 {
		refused := max(0, 1-1/max(load, 1))
		return 1 + refused + refused*refused
	}, true},
}

// sixOneOneCluster returns a cluster of three zones with equal numbers of nodes, and with six, one and one endpoints.
func sixOneOneCluster() (nodes map[string]map[string]string, endpoints []model.PortEndpoint) {
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

// shares returns the share that the nodes of each zone send to each endpoint if they plan for the given demand.
func shares(published map[string]float64) map[string][]float64 {
	nodes, endpoints := sixOneOneCluster()
	classes := balance.NewNodeClasses([]policy.Key{policy.Zone, policy.AnyNode}, "")
	demand := map[string]uint32{}
	for name, labels := range nodes {
		classes.Set(name, labels)
		demand[labels[string(policy.Zone)]] = uint32(published[labels[string(policy.Zone)]] * 1e6)
	}
	measured, _ := classes.Measured(&model.Demand{Zones: demand})
	zoneOf := func(e *model.PortEndpoint, key policy.Key) (string, bool) { return e.Zone, key == policy.Zone }
	plan := balance.NewPlan(measured, balance.NewEndpointClasses([]policy.Key{policy.Zone, policy.AnyNode}, endpoints, zoneOf), 100*bound)
	all := map[string][]float64{}
	for name, labels := range nodes {
		share := plan.Share(name, labels)
		perEndpoint := make([]float64, len(endpoints))
		for i := range perEndpoint {
			perEndpoint[i] = float64(share.Fractions[i]) / balance.One
		}
		all[labels[string(policy.Zone)]] = perEndpoint
	}
	return all
}

// settle returns the demand of each zone and the resulting load of each endpoint in equilibrium: an interval is long
// compared with a response. loads are those of the previous equilibrium, and are updated.
func settle(l loop, offered map[string]float64, shares map[string][]float64, loads []float64) (demand map[string]float64,
	endpointRates []float64) {
	for range 200 {
		demand, endpointRates = map[string]float64{}, make([]float64, len(loads))
		for _, zone := range slices.Sorted(maps.Keys(offered)) {
			factor := 0.0
			for i, share := range shares[zone] {
				factor += share * l.demand(loads[i])
			}
			demand[zone] = offered[zone] * factor
			for i, share := range shares[zone] {
				endpointRates[i] += share * demand[zone]
			}
		}
		for i := range loads {
			loads[i] += 0.05 * (endpointRates[i]/capacity - loads[i])
		}
	}
	return demand, endpointRates
}

// TestClosedLoopsConverge checks clients whose demand depends on response times, and so on the plan. That changes the
// amount of demand, and the plan meets the bound for any amount. Load is up to 1.3 times the capacity of all endpoints.
// Most of the remaining movement is chance.
func TestClosedLoopsConverge(t *testing.T) {
	equalShares := map[string]float64{"a": 1. / 3, "b": 1. / 3, "c": 1. / 3}
	demands := map[string]map[string]float64{"as assumed": equalShares, "one zone 80 %": {"a": 0.1, "b": 0.8, "c": 0.1}}
	for _, l := range loops {
		for demandName, byZone := range demands {
			for _, load := range []float64{0.5, 0.7, 0.9, 1, 1.1, 1.3} {
				busiest, maxPublished, maxMoves := 1.22, 2, 0.0075
				if l.demandChanges && demandName != "as assumed" && load >= 1 {
					// The less the nodes of zone c send and resend to its endpoint, the more capacity it has left for others. At
					// exactly full load that oscillates: with changes applied in full it did so forever, and the maximum was 1.46.
					busiest, maxPublished, maxMoves = 1.30, 30, 0.04
				}
				t.Run(fmt.Sprintf("%s, %s, load %g", l.name, demandName, load), func(t *testing.T) {
					for seed := range uint64(2) {
						w := newSimulation(seed, clusterShapes()["6-1-1"], equalShares)
						got := w.runLoop(l, byZone, load*8*capacity)
						t.Logf("%+v", got)
						if !(got.busiest <= busiest) || got.published > maxPublished || got.moves > maxMoves {
							t.Errorf("seed %d, in the last half hour: %+v, want at most %.2f, %d and %.4f", seed, got, busiest, maxPublished, maxMoves)
						}
					}
				})
			}
		}
	}
}

// loopResult is the result for the last half hour: the load of the busiest endpoint relative to the mean, how often
// shares were published, and by how much the share of zone b moved.
type loopResult struct {
	busiest   float64
	published int
	moves     float64
}

// runLoop simulates two hours of clients that would have the given rate at idle endpoints.
func (s *simulation) runLoop(l loop, byZone map[string]float64, rate float64) loopResult {
	offered, loads := map[string]float64{}, make([]float64, 8)
	for zone, share := range byZone {
		offered[zone] = rate * share
	}
	result, minShare, maxShare := loopResult{}, 1.0, 0.0
	for s.now < 2*time.Hour {
		demand, endpointRates := settle(l, offered, shares(s.published), loads)
		total := 0.0
		for _, zone := range slices.Sorted(maps.Keys(demand)) {
			total += demand[zone]
		}
		for zone := range demand {
			demand[zone] /= total
		}
		if s.now >= 90*time.Minute {
			result.busiest = max(result.busiest, slices.Max(endpointRates)/total*float64(len(endpointRates)))
			minShare, maxShare = min(minShare, s.published["b"]), max(maxShare, s.published["b"])
		}
		s.step(total, demand)
	}
	result.published, result.moves = s.publishedSince(90*time.Minute), maxShare-minShare
	return result
}
