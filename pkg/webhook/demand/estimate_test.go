package demand_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

const (
	interval = 30 * time.Second
	bound    = 1.2
)

// simulation is a Service whose clients connect at random.
type simulation struct {
	rng         *rand.Rand
	estimator   demand.Estimator
	endpoints   map[string]float64 // each zone's share of the endpoints
	assumed     map[string]float64
	published   map[string]float64 // the shares for which nodes plan
	now         time.Duration
	publishedAt []time.Duration
	reasons     map[demand.Reason]int
}

func newSimulation(seed uint64, endpoints, assumed map[string]float64) *simulation {
	return &simulation{
		rng: rand.New(rand.NewPCG(seed, 37)), endpoints: endpoints, assumed: assumed, published: assumed,
		reasons: map[demand.Reason]int{},
	}
}

// step simulates an interval of connections, for a rate per second and each zone's share of it.
func (s *simulation) step(rate float64, byZone map[string]float64) demand.Decision {
	s.now += interval
	counted := map[string]float64{}
	for _, zone := range slices.Sorted(maps.Keys(byZone)) {
		counted[zone] = poisson(s.rng, rate*interval.Seconds()*byZone[zone])
	}
	d := s.estimator.Add(demand.Sample{Took: interval, Zones: counted}, s.assumed)
	s.reasons[d.Reason]++
	switch d.Reason {
	case demand.First, demand.Changed:
		s.publishedAt = append(s.publishedAt, s.now)
		s.published = d.Shares
		s.estimator.SetPublished(d.Shares)
	case demand.BelowThreshold:
		s.published = s.assumed
		s.estimator.SetPublished(d.Shares)
	case demand.InsufficientData, demand.Unchanged:
	}
	return d
}

// publishedSince returns how often shares were published after a time.
func (s *simulation) publishedSince(since time.Duration) int {
	count := 0
	for _, at := range s.publishedAt {
		if at > since {
			count++
		}
	}
	return count
}

// maxLoad returns the load of the endpoints in the most loaded zone, relative to the mean, if nodes plan with the
// published shares while the actual demand differs. The plan is for the keys "zone, *": each zone keeps what its
// endpoints can take, and the rest goes where there is capacity left.
func (s *simulation) maxLoad(demand map[string]float64) float64 {
	room, kept := map[string]float64{}, map[string]float64{}
	var free float64
	for zone, endpoints := range s.endpoints {
		planned := s.published[zone]
		kept[zone] = 1
		if planned > bound*endpoints {
			kept[zone] = bound * endpoints / planned
		}
		room[zone] = bound*endpoints - planned*kept[zone]
		free += room[zone]
	}
	var spill float64
	for zone, share := range demand {
		spill += share * (1 - kept[zone])
	}
	load := 0.0
	for zone, endpoints := range s.endpoints {
		load = max(load, (demand[zone]*kept[zone]+spill*room[zone]/free)/endpoints)
	}
	return load
}

func poisson(rng *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return max(0, math.Round(mean+math.Sqrt(mean)*rng.NormFloat64()))
	}
	count, product := 0.0, rng.Float64()
	for limit := math.Exp(-mean); product > limit; product *= rng.Float64() {
		count++
	}
	return count
}

func threeZones() map[string]float64 {
	return map[string]float64{"a": 4. / 11, "b": 4. / 11, "c": 3. / 11}
}

// clusterShapes are clusters: each zone's share of the endpoints, and of the nodes.
func clusterShapes() map[string]map[string]float64 {
	return map[string]map[string]float64{
		"4-4-3":    threeZones(),
		"6-1-1":    {"a": 6. / 8, "b": 1. / 8, "c": 1. / 8},
		"40-1-1-1": {"a": 40. / 43, "b": 1. / 43, "c": 1. / 43, "d": 1. / 43},
	}
}

// skewedTo returns a share of 80 % for one zone; the others share the rest in proportion to their endpoints.
func skewedTo(zones map[string]float64, skewed string) map[string]float64 {
	byZone := map[string]float64{}
	for zone, share := range zones {
		byZone[zone] = 0.2 * share / (1 - zones[skewed])
	}
	byZone[skewed] = 0.8
	return byZone
}

// blendShares returns a weighted mean of two distributions.
func blendShares(one, other map[string]float64, weight float64) map[string]float64 {
	byZone := map[string]float64{}
	for zone := range one {
		byZone[zone] = one[zone]*(1-weight) + other[zone]*weight
	}
	return byZone
}

func TestConstantDemand(t *testing.T) {
	for shape, endpoints := range clusterShapes() {
		for rate, limit := range map[float64]float64{500: 1.25, 20: 1.30, 2: 1.40, 0.2: 1.60} {
			t.Run(fmt.Sprintf("%s, %g per second", shape, rate), func(t *testing.T) {
				highest, early, late := 0.0, 0, 0.0
				for seed := range uint64(9) {
					w, demand := newSimulation(seed, endpoints, endpoints), skewedTo(endpoints, "b")
					for w.now < 6*time.Hour {
						w.step(rate, demand)
						if w.now > 10*time.Minute && rate > 2 || w.now > time.Hour {
							highest = max(highest, w.maxLoad(demand))
						}
					}
					late = max(late, float64(w.publishedSince(time.Hour))/5)
					early = max(early, len(w.publishedAt)-w.publishedSince(40*time.Minute))
				}
				t.Logf("busiest %.3f; published %d times in 40 minutes, then %.1f times an hour", highest, early, late)
				if highest > limit {
					t.Errorf("the busiest endpoint gets %.3f of the mean, want at most %.2f", highest, limit)
				}
				if early > 5 || late > 2 {
					t.Errorf("published %d times in 40 minutes, then %.1f times an hour; want at most 5 and 2", early, late)
				}
			})
		}
	}
}

// TestManyZonesPublishRarely checks zones with few connections each, of which some always have fewer than others by
// chance. Zones have equal numbers of nodes, and one to six parts of the endpoints.
func TestManyZonesPublishRarely(t *testing.T) {
	for _, zones := range []int{100, 500} {
		endpoints, assumed, oneZone, tenZones := map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}
		for number := range zones {
			zone := fmt.Sprintf("z%03d", number)
			endpoints[zone] = []float64{1, 2, 1, 4, 1, 3, 2, 1, 1, 6}[number%10] / 2.2 / float64(zones)
			assumed[zone], oneZone[zone], tenZones[zone] = 1/float64(zones), 0.2/float64(zones-1), 1./3/float64(zones-10)
			if number%(zones/10) == 4 {
				tenZones[zone] = 2. / 3 / 10
			}
		}
		oneZone["z004"] = 0.8
		for _, c := range []struct {
			name string
			asks map[string]float64
			most map[float64]float64 // by rate: the maximum load of the busiest endpoint
		}{
			{"as assumed", assumed, map[float64]float64{500: 1.21, 20: 1.21, 1: 1.21}},
			{"one zone 80 %", oneZone, map[float64]float64{500: 1.25, 20: 1.25, 1: 1.30}},
			{"ten zones two thirds", tenZones, map[float64]float64{500: 1.25, 20: 1.45, 1: 1.65}},
		} {
			for rate, limit := range c.most {
				t.Run(fmt.Sprintf("%d zones, %s, %g per second", zones, c.name, rate), func(t *testing.T) {
					w, highest := newSimulation(1, endpoints, assumed), 0.0
					for w.now < 2*time.Hour {
						w.step(rate, c.asks)
						if w.now > 10*time.Minute && rate > 2 || w.now > time.Hour {
							highest = max(highest, w.maxLoad(c.asks))
						}
					}
					late := w.publishedSince(time.Hour)
					early := len(w.publishedAt) - w.publishedSince(40*time.Minute)
					t.Logf("busiest %.3f; published %d times in 40 minutes, %d times in the second hour", highest, early, late)
					if highest > limit || early > 5 || late > 3 {
						t.Errorf("busiest %.3f; published %d times in 40 minutes, %d times in the second hour; want at most %.2f, 5 and 3",
							highest, early, late, limit)
					}
				})
			}
		}
	}
}

func TestChangePointIsDetected(t *testing.T) {
	for rate, intervals := range map[float64]int{500: 2, 20: 3} {
		t.Run(fmt.Sprintf("%g per second", rate), func(t *testing.T) {
			for shape, endpoints := range clusterShapes() {
				for seed := range uint64(9) {
					w := newSimulation(seed, endpoints, endpoints)
					for w.now < time.Hour {
						w.step(rate, skewedTo(endpoints, "b"))
					}
					jumped := skewedTo(endpoints, "c")
					// They move in the middle of an interval.
					changed := w.step(rate, blendShares(skewedTo(endpoints, "b"), jumped, 0.5)).ChangePoint
					for range intervals - 1 {
						changed = w.step(rate, jumped).ChangePoint || changed
					}
					if !changed {
						t.Errorf("%s, seed %d: no change-point was detected", shape, seed)
					}
					if busiest := w.maxLoad(jumped); busiest > 1.25+0.05*float64(intervals-2) {
						t.Errorf("%s, seed %d: the busiest endpoint gets %.3f of the mean", shape, seed, busiest)
					}
				}
			}
		})
	}
}

func TestDiurnalDemand(t *testing.T) {
	// Differences below 0.2 percentage points are ignored: 1/12 of the demand of a zone with one of 43 endpoints.
	maxLoads := map[string]float64{"4-4-3": 1.28, "6-1-1": 1.28, "40-1-1-1": 1.36}
	for shape, endpoints := range clusterShapes() {
		t.Run(shape, func(t *testing.T) {
			w, highest, above := newSimulation(1, endpoints, endpoints), 0.0, 0
			for w.now < 24*time.Hour {
				demand, sum := map[string]float64{}, 0.0
				for i, zone := range slices.Sorted(maps.Keys(endpoints)) {
					phase := w.now.Hours()/24 + float64(i)/float64(len(endpoints))
					demand[zone] = endpoints[zone] * (1 + 0.8*math.Sin(2*math.Pi*phase))
					sum += demand[zone]
				}
				for zone := range demand {
					demand[zone] /= sum
				}
				w.step(500, demand)
				if w.now <= 10*time.Minute {
					continue
				}
				busiest := w.maxLoad(demand)
				highest = max(highest, busiest)
				if busiest > 1.28 {
					above++
				}
			}
			t.Logf("busiest %.3f, above 1.28 in %d intervals; published %d times", highest, above, len(w.publishedAt))
			if highest > maxLoads[shape] || above > 24*120/20 || len(w.publishedAt) > 400 {
				t.Errorf("busiest %.3f, above 1.28 in %d intervals of 2880, published %d times; want at most %.2f, 144 and 400",
					highest, above, len(w.publishedAt), maxLoads[shape])
			}
		})
	}
}

func TestZoneWithoutConnectionsDecays(t *testing.T) {
	w := newSimulation(1, threeZones(), threeZones())
	for w.now < time.Hour {
		w.step(20, map[string]float64{"a": 1})
	}
	for w.now < 2*time.Hour {
		w.step(20, map[string]float64{"b": 1})
	}
	if got := w.published["a"]; got > 0.01 {
		t.Errorf("zone a has had no connections for an hour, and has a share of %.3f", got)
	}
}

func TestFewConnectionsAreNotPublished(t *testing.T) {
	w := newSimulation(1, threeZones(), threeZones())
	for w.now < 2*time.Hour {
		w.step(1./300, map[string]float64{"b": 1})
	}
	if len(w.publishedAt) != 0 || w.reasons[demand.InsufficientData] != 240 {
		t.Errorf("published at %v, reasons %v; want InsufficientData 240 times", w.publishedAt, w.reasons)
	}
}

func TestBelowThresholdDeletesDemand(t *testing.T) {
	w := newSimulation(1, threeZones(), threeZones())
	for w.now < time.Hour {
		w.step(1, skewedTo(threeZones(), "b"))
	}
	if w.reasons[demand.First] != 1 {
		t.Fatalf("reasons %v, want First once", w.reasons)
	}
	for w.now < 8*time.Hour {
		w.step(0, threeZones())
	}
	if w.reasons[demand.BelowThreshold] != 1 || w.reasons[demand.First] != 1 {
		t.Errorf("reasons %v, want BelowThreshold once and First once", w.reasons)
	}
	if !maps.Equal(w.published, threeZones()) {
		t.Errorf("published: %v, want the assumed shares", w.published)
	}
}

func TestNewLeaderKeepsPublishedDemand(t *testing.T) {
	w := newSimulation(1, threeZones(), threeZones())
	w.estimator.SetPublished(skewedTo(threeZones(), "b"))
	w.published = skewedTo(threeZones(), "b")
	for w.now < 40*time.Minute {
		w.step(500, skewedTo(threeZones(), "b"))
	}
	if w.reasons[demand.BelowThreshold] != 0 || w.reasons[demand.First] != 0 || len(w.publishedAt) > 2 {
		t.Errorf("published at %v, reasons %v; want the published shares to stay", w.publishedAt, w.reasons)
	}
}

func TestUnpublishedDecisionIsRepeated(t *testing.T) {
	var e demand.Estimator
	sample := demand.Sample{Took: interval, Zones: map[string]float64{"a": 1000, "b": 9000}}
	for range 3 {
		d := e.Add(sample, map[string]float64{"a": 0.5, "b": 0.5})
		if d.Reason != demand.First || d.Skew < 1.7 || d.Skew > 1.8 {
			t.Errorf("reason %q, skew %.2f; want First, skew 1.8", d.Reason, d.Skew)
		}
	}
}

func TestSampleWithoutDurationIsIgnored(t *testing.T) {
	var e demand.Estimator
	d := e.Add(demand.Sample{Zones: map[string]float64{"a": 1000}}, map[string]float64{"a": 1})
	if d.Reason != demand.InsufficientData || d.ConnectionsPerMinute != 0 {
		t.Errorf("decision %+v, want InsufficientData", d)
	}
}

// TestNewLeaderWithFewConnectionsPublishesNothing checks a new leader: its few connections alone would be closer to the
// assumed demand than to the published one. The assumed demand is far off, as in a cluster with many zones.
func TestNewLeaderWithFewConnectionsPublishesNothing(t *testing.T) {
	assumed := map[string]float64{"a": 0.04, "b": 0.96}
	published := map[string]float64{"a": 0.8, "b": 0.2}
	for _, rate := range []float64{0, 0.05, 0.2, 1, 2, 20} {
		for seed := range uint64(20) {
			w := newSimulation(seed, assumed, assumed)
			w.estimator.SetPublished(published)
			w.published = published
			for w.now < 10*time.Minute {
				w.step(rate, published)
			}
			if len(w.publishedAt) > 0 {
				t.Errorf("%v connections/s, seed %d: published at %v a share of %.2f for zone a, although the published one is still right",
					rate, seed, w.publishedAt, w.published["a"])
			}
		}
	}
}
