package demand_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

// parts are the parts of the estimator that a benchmark switches off alone.
var parts = []string{
	"change-points", "shrinkage", "many comparisons", "noise band", "relative band", "least number", "inherited window", "oscillation",
}

// shape is a cluster: each zone's share of the nodes and of the endpoints. In its example most clients are in the zone
// from, and then in the zone to.
type shape struct {
	name             string
	nodes, endpoints map[string]float64
	from, to         string
}

// exampleShapes are the shapes of package balance that a load bound changes.
var exampleShapes = []shape{
	{"4-4-3", proportions(1, 1, 1), proportions(4, 4, 3), "b", "c"},
	{"6-1-1", proportions(1, 1, 1), proportions(6, 1, 1), "b", "c"},
	{"40-1-1-1", proportions(1, 1, 1, 1), proportions(40, 1, 1, 1), "b", "c"},
	{"200 nodes", proportions(80, 60, 30, 20, 10), proportions(40, 30, 16, 10, 4), "d", "e"},
}

// proportions returns shares for the zones a, b, c and so on.
func proportions(values ...float64) map[string]float64 {
	shares, sum := map[string]float64{}, 0.0
	for _, value := range values {
		sum += value
	}
	for i, value := range values {
		shares[string(rune('a'+i))] = value / sum
	}
	return shares
}

// result is what clients of a Service see.
type result struct {
	busiest      float64 // highest load from ten minutes on, relative to the mean, while clients stay as they are
	publications float64 // an hour, while clients stay as they are
	seconds      float64 // after clients move, until the highest load is at most 1.25
}

// runExample simulates clients that are as assumed; or 80 % in one zone for three hours, until they move to another
// zone in the middle of an interval.
func (s shape) runExample(seed uint64, rate float64) result {
	var r result
	for _, demand := range []map[string]float64{s.nodes, concentrated(s.nodes, s.from, 0.8)} {
		w := newSimulation(seed, s.endpoints, s.nodes)
		for w.now < 3*time.Hour {
			w.step(rate, demand)
			if w.now > 10*time.Minute {
				r.busiest = max(r.busiest, w.maxLoad(demand))
			}
		}
		r.publications = max(r.publications, float64(w.publishedSince(time.Hour))/2)
		r.seconds = w.secondsToFollow(rate, demand, concentrated(s.nodes, s.to, 0.8))
	}
	return r
}

// secondsToFollow returns how long the highest load is above 1.25 after clients move in the middle of an interval; at
// most two hours.
func (s *simulation) secondsToFollow(rate float64, before, after map[string]float64) float64 {
	s.step(rate, blendShares(before, after, 0.5))
	moved := s.now - interval/2
	for s.maxLoad(after) > 1.25 && s.now < moved+2*time.Hour {
		s.step(rate, after)
	}
	return (s.now - moved).Seconds()
}

// typical returns the medians of the results, and the mean number of publications.
func typical(results []result) result {
	var sum result
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.busiest, b.busiest) })
	sum.busiest = results[len(results)/2].busiest
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.seconds, b.seconds) })
	sum.seconds = results[len(results)/2].seconds
	for _, r := range results {
		sum.publications += r.publications / float64(len(results))
	}
	return sum
}

// followRates are the rates of connections for which it is measured how soon a change is followed.
var followRates = []float64{0.2, 1, 2, 5, 10, 20, 100, 500}

// TestExamples checks one seed of each row that BenchmarkParts prints. In 40-1-1-1 all of the small zones are at their
// limit, so a change is followed when the smallest share is accurate to 4 %.
func TestExamples(t *testing.T) {
	for _, s := range exampleShapes {
		for rate, limit := range map[float64]result{500: {1.25, 1, 45}, 20: {1.30, 1, 165}, 2: {1.40, 1, 900}} {
			if s.name == "40-1-1-1" {
				limit.seconds *= 15
			}
			got := s.runExample(2, rate)
			t.Logf("%s, %g per second: %+v", s.name, rate, got)
			if got.busiest > limit.busiest || got.publications > limit.publications || got.seconds > limit.seconds {
				t.Errorf("%s, %g per second: %+v, want at most %+v", s.name, rate, got, limit)
			}
		}
	}
}

// TestAllClientsMove checks clients that are all in one zone and move to another: from five connections a second on,
// the first complete interval suffices.
func TestAllClientsMove(t *testing.T) {
	for _, s := range exampleShapes {
		for _, rate := range followRates {
			if rate >= 5 {
				got := s.secondsToFollow(1, rate, 1)
				if got != 45 {
					t.Errorf("%s, %g per second: followed after %g s, want 45 s", s.name, rate, got)
				}
			}
		}
	}
}

// secondsToFollow returns how long the highest load is above 1.25 after a fraction of all clients moves from one zone
// to another.
func (s shape) secondsToFollow(seed uint64, rate, fraction float64) float64 {
	w := newSimulation(seed, s.endpoints, s.nodes)
	for w.now < 3*time.Hour {
		w.step(rate, concentrated(s.nodes, s.from, fraction))
	}
	return w.secondsToFollow(rate, concentrated(s.nodes, s.from, fraction), concentrated(s.nodes, s.to, fraction))
}

// concentrated returns demand of which a fraction is in one zone; the others share the rest in proportion to their
// nodes.
func concentrated(nodes map[string]float64, zone string, fraction float64) map[string]float64 {
	byZone := map[string]float64{}
	for other, share := range nodes {
		byZone[other] = (1 - fraction) * share / (1 - nodes[zone])
	}
	byZone[zone] = fraction
	return byZone
}

// BenchmarkFollowing prints how soon a change is followed: the median and the maximum, in seconds.
func BenchmarkFollowing(b *testing.B) {
	for b.Loop() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, fraction := range []float64{0.8, 1} {
			fmt.Fprintf(w, "\n%g %% move\t", 100*fraction)
			for _, rate := range followRates {
				fmt.Fprintf(w, "%g/s\t", rate)
			}
			fmt.Fprintln(w)
			for _, s := range exampleShapes {
				fmt.Fprintf(w, "%s\t", s.name)
				for _, rate := range followRates {
					var seconds []float64
					for seed := range uint64(27) {
						seconds = append(seconds, s.secondsToFollow(seed, rate, fraction))
					}
					slices.Sort(seconds)
					fmt.Fprintf(w, "%.0f, %.0f\t", seconds[len(seconds)/2], seconds[len(seconds)-1])
				}
				fmt.Fprintln(w)
			}
		}
		_ = w.Flush()
	}
}

// BenchmarkParts prints what each part of the estimator is for: the results with all parts, and how much worse they are
// without one.
func BenchmarkParts(b *testing.B) {
	for b.Loop() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "\n\t\t")
		for _, part := range append([]string{"all parts"}, parts...) {
			fmt.Fprintf(w, "%s\t", part)
		}
		fmt.Fprintln(w)
		for _, s := range exampleShapes {
			for _, rate := range []float64{2, 20, 500} {
				fmt.Fprintf(w, "%s\t%g/s\t", s.name, rate)
				for _, part := range append([]string{""}, parts...) {
					restore := demand.Without(part)
					var results []result
					for seed := range uint64(27) {
						results = append(results, s.runExample(seed, rate))
					}
					restore()
					r := typical(results)
					fmt.Fprintf(w, "%.2f %.1f %.0f\t", r.busiest, r.publications, r.seconds)
				}
				fmt.Fprintln(w)
			}
		}
		scenarios := oddScenarios()
		for _, name := range slices.Sorted(maps.Keys(scenarios)) {
			fmt.Fprintf(w, "%s\t\t", name)
			for _, part := range append([]string{""}, parts...) {
				restore := demand.Without(part)
				fmt.Fprintf(w, "%.2f\t", scenarios[name]())
				restore()
			}
			fmt.Fprintln(w)
		}
		_ = w.Flush()
	}
}

// oddScenarios are the cases for which some of the parts were made.
func oddScenarios() map[string]func() float64 {
	return map[string]func() float64{
		"40-1-1-1, as assumed, 0.5/s: highest of 27": func() float64 {
			s, highest := exampleShapes[2], 0.0
			for seed := range uint64(27) {
				w := newSimulation(seed, s.endpoints, s.nodes)
				for w.now < 3*time.Hour {
					w.step(0.5, s.nodes)
					highest = max(highest, w.maxLoad(s.nodes))
				}
			}
			return highest
		},
		"500 zones, every other one twice as much, 2000/s: publications in the second hour": func() float64 {
			endpoints, nodes := manyZones(500)
			demand := map[string]float64{}
			for number, zone := range slices.Sorted(maps.Keys(nodes)) {
				demand[zone] = nodes[zone] * float64(1+number%2) / 1.5
			}
			w := newSimulation(1, endpoints, nodes)
			for w.now < 2*time.Hour {
				w.step(2000, demand)
			}
			return float64(w.publishedSince(time.Hour))
		},
		"new leaders that publish, %": func() float64 {
			published, leaders := 0, 0
			for _, rate := range []float64{0.2, 1, 2, 20} {
				for seed := range uint64(25) {
					w := newSimulation(seed, proportions(1, 1, 1), proportions(1, 1, 1))
					w.published = map[string]float64{"a": 0.5, "b": 0.25, "c": 0.25}
					w.estimator.SetPublished(w.published, nil, 0)
					for w.now < 10*time.Minute {
						w.step(rate, map[string]float64{"a": 0.5, "b": 0.25, "c": 0.25})
					}
					if leaders++; len(w.publishedAt) > 0 {
						published++
					}
				}
			}
			return 100 * float64(published) / float64(leaders)
		},
		"day and night, 4-4-3, 500/s: publications an hour": func() float64 {
			w := newSimulation(1, threeZones(), threeZones())
			w.runDiurnal(500, nil)
			return float64(len(w.publishedAt)) / 24
		},
		"two Services that call each other: mean of the busiest": func() float64 {
			return pairs()["6-1-1 and 1-1-6, clients alike, 0.9 calls back"].run().mean
		},
		"retries at full load: busiest": func() float64 {
			w := newSimulation(1, clusterShapes()["6-1-1"], proportions(1, 1, 1))
			return w.runLoop(loops[2], map[string]float64{"a": 0.1, "b": 0.8, "c": 0.1}, 8*capacity).busiest
		},
	}
}
