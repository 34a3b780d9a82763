package demand_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

func TestConstantDemand(t *testing.T) {
	for shape, endpoints := range clusterShapes() {
		for rate, limit := range map[float64]float64{500: 1.25, 20: 1.30, 2: 1.40, 0.2: 1.60} {
			t.Run(fmt.Sprintf("%s, %g per second", shape, rate), func(t *testing.T) {
				highest, early, late := 0.0, 0, 0.0
				for seed := range uint64(9) {
					w, demand := newSimulation(seed, endpoints, endpoints), concentrated(endpoints, "b", 0.8)
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

// manyZones returns zones with equal numbers of nodes, and one to six parts of the endpoints.
func manyZones(zones int) (endpoints, nodes map[string]float64) {
	endpoints, nodes = map[string]float64{}, map[string]float64{}
	for number := range zones {
		zone := fmt.Sprintf("z%03d", number)
		endpoints[zone] = []float64{1, 2, 1, 4, 1, 3, 2, 1, 1, 6}[number%10] / 2.2 / float64(zones)
		nodes[zone] = 1 / float64(zones)
	}
	return endpoints, nodes
}

// tenZones returns demand of which two thirds are in ten of many zones.
func tenZones(nodes map[string]float64) map[string]float64 {
	byZone := map[string]float64{}
	for number, zone := range slices.Sorted(maps.Keys(nodes)) {
		if byZone[zone] = 1. / 3 / float64(len(nodes)-10); number%(len(nodes)/10) == 4 {
			byZone[zone] = 2. / 3 / 10
		}
	}
	return byZone
}

// TestManyZonesPublishRarely checks zones with few connections each, of which some always have fewer than others by
// chance.
func TestManyZonesPublishRarely(t *testing.T) {
	for _, zones := range []int{100, 500} {
		endpoints, assumed := manyZones(zones)
		for _, c := range []struct {
			name string
			asks map[string]float64
			most map[float64]float64 // by rate: the maximum load of the busiest endpoint
		}{
			{"as assumed", assumed, map[float64]float64{500: 1.21, 20: 1.21, 1: 1.21}},
			{"one zone 80 %", concentrated(assumed, "z004", 0.8), map[float64]float64{500: 1.25, 20: 1.25, 1: 1.30}},
			{"ten zones two thirds", tenZones(assumed), map[float64]float64{500: 1.25, 20: 1.45, 1: 1.65}},
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
						w.step(rate, concentrated(endpoints, "b", 0.8))
					}
					jumped := concentrated(endpoints, "c", 0.8)
					// They move in the middle of an interval.
					changed := w.step(rate, blendShares(concentrated(endpoints, "b", 0.8), jumped, 0.5)).ChangePoint
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

// TestClientsThatMoveOften checks clients that move to and fro each five minutes, in the middle of an interval. That is
// no oscillation: they do not follow the plan.
func TestClientsThatMoveOften(t *testing.T) {
	for _, rate := range []float64{20, 500} {
		for _, s := range exampleShapes {
			w, above := newSimulation(1, s.endpoints, s.nodes), 0
			places := []map[string]float64{concentrated(s.nodes, s.from, 1), concentrated(s.nodes, s.to, 1)}
			for w.now < 6*time.Hour {
				number := int(w.now / interval)
				demand := places[number/10%2]
				if number%10 == 0 {
					demand = blendShares(demand, places[(number/10+1)%2], 0.5)
				}
				d := w.step(rate, demand)
				if d.Oscillates {
					t.Fatalf("%s, %g per second: oscillation at %v", s.name, rate, w.now)
				}
				if w.now > 3*time.Hour && w.maxLoad(places[number/10%2]) > 1.25 {
					above++
				}
			}
			// After the first interval only half of the move is known.
			if above > 36 {
				t.Errorf("%s, %g per second: above 1.25 after %d of 360 intervals, want 36", s.name, rate, above)
			}
		}
	}
}

// runDiurnal simulates a day in which the demand of each zone varies from 0.2 to 1.8 times its assumed share. It calls
// busiest with the highest load after each interval, from ten minutes on.
func (s *simulation) runDiurnal(rate float64, busiest func(float64)) {
	for s.now < 24*time.Hour {
		demand, sum := map[string]float64{}, 0.0
		for i, zone := range slices.Sorted(maps.Keys(s.endpoints)) {
			phase := s.now.Hours()/24 + float64(i)/float64(len(s.endpoints))
			demand[zone] = s.assumed[zone] * (1 + 0.8*math.Sin(2*math.Pi*phase))
			sum += demand[zone]
		}
		for zone := range demand {
			demand[zone] /= sum
		}
		s.step(rate, demand)
		if s.now > 10*time.Minute && busiest != nil {
			busiest(s.maxLoad(demand))
		}
	}
}

func TestDiurnalDemand(t *testing.T) {
	// Differences below 0.2 percentage points are ignored: 1/12 of the demand of a zone with one of 43 endpoints.
	maxLoads := map[string]float64{"4-4-3": 1.28, "6-1-1": 1.28, "40-1-1-1": 1.36}
	for shape, endpoints := range clusterShapes() {
		t.Run(shape, func(t *testing.T) {
			w, highest, above := newSimulation(1, endpoints, endpoints), 0.0, 0
			w.runDiurnal(500, func(busiest float64) {
				highest = max(highest, busiest)
				if busiest > 1.28 {
					above++
				}
			})
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
		w.step(1, concentrated(threeZones(), "b", 0.8))
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
	w.estimator.SetPublished(concentrated(threeZones(), "b", 0.8), nil, 0)
	w.published = concentrated(threeZones(), "b", 0.8)
	for w.now < 40*time.Minute {
		w.step(500, concentrated(threeZones(), "b", 0.8))
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
			w.estimator.SetPublished(published, nil, 0)
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

// TestEffectiveNodes checks how concentrated the nodes are that connect, whatever the zones.
func TestEffectiveNodes(t *testing.T) {
	for _, c := range []struct {
		perZone  int // nodes that connect, in each of two zones
		all      int // all nodes
		rate     float64
		min, max int32
	}{
		{1, 10_000, 0.5, 2, 2}, {1, 10_000, 20, 2, 2}, {1, 10_000, 500, 2, 2}, {3, 10_000, 20, 4, 4},
		{500, 10_000, 20, 512, 1024}, {500, 10_000, 500, 512, 1024}, {500, 10_000, 0.5, 0, 0},
		{500, 1000, 20, 0, 0}, {500, 4000, 500, 0, 0}, // too many to matter
	} {
		changes := 0
		for seed := range uint64(5) {
			w := newSimulation(seed, proportions(1, 1), proportions(1, 1))
			w.nodes, w.allNodes = c.perZone, c.all
			last := int32(-1)
			for w.now < 2*time.Hour {
				d := w.step(c.rate, proportions(1, 1))
				if w.now > 10*time.Minute {
					if d.EffectiveNodes < c.min || d.EffectiveNodes > c.max {
						t.Fatalf("2 x %d nodes, %g per second, at %v: %d, want %d to %d", c.perZone, c.rate, w.now, d.EffectiveNodes, c.min, c.max)
					}
					if d.EffectiveNodes != last {
						changes++
					}
					last = d.EffectiveNodes
				}
			}
		}
		if changes > 7 { // the first value of each of five
			t.Errorf("2 x %d nodes, %g per second: %d different values in succession", c.perZone, c.rate, changes)
		}
	}
}

// TestEffectiveNodesFollowClients checks that the number changes with the clients. On the way to a larger number it may
// stay at half of it.
func TestEffectiveNodesFollowClients(t *testing.T) {
	w := newSimulation(1, proportions(1, 1), proportions(1, 1))
	for _, c := range []struct {
		perZone  int
		rate     float64
		min, max int32
	}{{1, 20, 2, 2}, {16, 20, 16, 32}, {1, 20, 2, 2}, {1, 1, 2, 2}, {500, 1, 64, 1024}} {
		w.nodes = c.perZone
		var got int32
		for range 360 {
			got = w.step(c.rate, proportions(1, 1)).EffectiveNodes
		}
		if got < c.min || got > c.max {
			t.Errorf("2 x %d nodes, %g per second: %d, want %d to %d", c.perZone, c.rate, got, c.min, c.max)
		}
	}
}
