package demand_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
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

// pair is two Services that call each other: each call to the first makes one to the second, and each of those makes
// back calls to the first. So the endpoints of one are the clients of the other, and the demand on either depends on
// the plan of the other.
type pair struct {
	first, second *simulation
	external      map[string]float64 // calls of other clients to the first one, per second
	back          float64
}

// demands returns the calls to both, per second, in equilibrium.
func (p pair) demands() (first, second map[string]float64) {
	first = p.external
	for range 200 {
		second = p.first.loads(first)
		next := p.second.loads(second)
		for zone, calls := range next {
			next[zone] = p.external[zone] + p.back*calls
		}
		first = next
	}
	return first, second
}

// step simulates an interval, and returns the highest load of an endpoint of either one.
func (p pair) step() (busiest float64) {
	first, second := p.demands()
	for service, calls := range map[*simulation]map[string]float64{p.first: first, p.second: second} {
		rate, shares := 0.0, map[string]float64{}
		for _, zone := range slices.Sorted(maps.Keys(calls)) {
			rate += calls[zone]
		}
		for zone := range calls {
			shares[zone] = calls[zone] / rate
		}
		busiest = max(busiest, service.maxLoad(shares))
		service.step(rate, shares)
	}
	return busiest
}

// pairResult has the loads of the busiest endpoint in the last of four hours, and the publications in that hour.
// assumed is the load with assumed demand.
type pairResult struct{ assumed, mean, highest, publications float64 }

func (p pair) run() pairResult {
	result := pairResult{assumed: p.step()}
	for p.first.now < 4*time.Hour {
		busiest := p.step()
		if p.first.now > 3*time.Hour {
			result.mean += busiest / 120
			result.highest = max(result.highest, busiest)
		}
	}
	result.publications = float64(p.first.publishedSince(3*time.Hour) + p.second.publishedSince(3*time.Hour))
	return result
}

// pairs returns pairs of Services by name, with endpoints and other clients in different zones.
func pairs() map[string]pair {
	alike, all := proportions(1, 1, 1), map[string]pair{}
	for name, endpoints := range map[string][2]map[string]float64{
		"4-4-3 and 3-4-4": {proportions(4, 4, 3), proportions(3, 4, 4)}, "6-1-1 and 1-1-6": {proportions(6, 1, 1), proportions(1, 1, 6)},
		"6-1-1 and 6-1-1": {proportions(6, 1, 1), proportions(6, 1, 1)}, "1-2-3 and 3-2-1": {proportions(1, 2, 3), proportions(3, 2, 1)},
	} {
		for clients, external := range map[string]map[string]float64{"alike": alike, "one zone 80 %": concentrated(alike, "b", 0.8)} {
			for _, back := range []float64{0.7, 0.9} {
				calls := map[string]float64{}
				for zone, share := range external {
					calls[zone] = 50 * share
				}
				all[fmt.Sprintf("%s, clients %s, %g calls back", name, clients, back)] = pair{
					newSimulation(1, endpoints[0], alike), newSimulation(1001, endpoints[1], alike), calls, back,
				}
			}
		}
	}
	return all
}

// TestPairsComeToRest checks that the bound holds for most of the time although demand changes with the plan.
func TestPairsComeToRest(t *testing.T) {
	for name, p := range pairs() {
		t.Run(name, func(t *testing.T) {
			got := p.run()
			t.Logf("%+v", got)
			if got.mean > 1.3 || got.publications > 30 {
				t.Errorf("in the fourth hour: %+v, want a mean of at most 1.3 and 30 publications", got)
			}
		})
	}
}

// TestOscillationEnds checks that changes are followed again when demand no longer changes with the plan.
func TestOscillationEnds(t *testing.T) {
	service := pairs()["6-1-1 and 1-1-6, clients alike, 0.9 calls back"]
	for service.first.now < 30*time.Minute {
		service.step()
	}
	w, alike := service.first, proportions(1, 1, 1)
	if !w.step(50, alike).Oscillates {
		t.Fatal("no oscillation was detected")
	}
	for w.now < 2*time.Hour {
		w.step(50, alike)
	}
	for range 2 {
		w.step(50, concentrated(alike, "b", 0.8))
	}
	if busiest := w.maxLoad(concentrated(alike, "b", 0.8)); w.step(50, alike).Oscillates || busiest > 1.25 {
		t.Errorf("two intervals after clients moved, the busiest endpoint gets %.2f of the mean", busiest)
	}
}

// BenchmarkPairs prints the load of the busiest endpoint of two Services that call each other.
func BenchmarkPairs(b *testing.B) {
	for b.Loop() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "\n\tassumed\tmean\thighest\tpublications")
		all := pairs()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			got := all[name].run()
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%g\n", name, got.assumed, got.mean, got.highest, got.publications)
		}
		_ = w.Flush()
	}
}
