package demand_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// lifetime is how long connections last: its mean, and the lifetime of one connection.
type lifetime struct {
	mean time.Duration
	draw func(*rand.Rand) time.Duration
}

func exponential(mean time.Duration) lifetime {
	return lifetime{mean, func(rng *rand.Rand) time.Duration { return time.Duration(rng.ExpFloat64() * float64(mean)) }}
}

// pareto has lifetimes of at least 30 s; few long ones are a large part of the sum.
var pareto = lifetime{90 * time.Second, func(rng *rand.Rand) time.Duration {
	return time.Duration(30 * float64(time.Second) / math.Pow(1-rng.Float64(), 1/1.5))
}}

// openConnections are the open connections of one zone.
type openConnections struct {
	lifetime lifetime
	number   float64
	ends     map[time.Duration]float64 // by the end of the interval
}

// add opens connections in the interval that ends now, closes those that end in it, and returns how many are open.
func (o *openConnections) add(rng *rand.Rand, now time.Duration, opened float64) float64 {
	for range int(opened) {
		age := time.Duration(rng.Float64() * float64(interval))
		end := now - age + o.lifetime.draw(rng)
		o.ends[max(end.Truncate(interval)+interval, now)]++
	}
	o.number += opened - o.ends[now]
	delete(o.ends, now)
	return o.number
}

// openDemand makes a simulation count open connections, and returns the rate and the shares of new ones. open has the
// number of open connections by zone, and long the lifetimes that are longer than 30 s.
func (s *simulation) openDemand(open map[string]float64, long map[string]lifetime) (rate float64, shares map[string]float64) {
	s.open, shares = map[string]*openConnections{}, map[string]float64{}
	for zone, number := range open {
		l, isLong := long[zone]
		if !isLong {
			l = exponential(30 * time.Second)
		}
		s.open[zone] = &openConnections{lifetime: l, ends: map[time.Duration]float64{}}
		shares[zone] = number / l.mean.Seconds()
		rate += shares[zone]
	}
	for zone := range shares {
		shares[zone] /= rate
	}
	return rate, shares
}

// TestOpenConnections checks 1,000 open connections that last differently, or alike. Once their numbers are steady, the
// proxies begin to report them.
func TestOpenConnections(t *testing.T) {
	alike, skewed := proportions(1, 1, 1, 1), concentrated(proportions(1, 1, 1, 1), "b", 0.8)
	hour := exponential(time.Hour)
	all := func(l lifetime) map[string]lifetime { return map[string]lifetime{"a": l, "b": l, "c": l, "d": l} }
	for name, c := range map[string]struct {
		shares map[string]float64 // of open connections
		long   map[string]lifetime
		differ bool // if new connections have other shares
	}{
		"alike, 30 s":                     {alike, nil, false},
		"alike, 1 h":                      {alike, all(hour), false},
		"alike, one zone's last 1 h":      {alike, map[string]lifetime{"b": hour}, true},
		"one zone 80 %, 30 s":             {skewed, nil, false},
		"one zone 80 %, 1 h":              {skewed, all(hour), false},
		"one zone 80 %, theirs last 1 h":  {skewed, map[string]lifetime{"b": hour}, true},
		"one zone 80 %, Pareto from 30 s": {skewed, all(pareto), false},
	} {
		t.Run(name, func(t *testing.T) {
			published, withOpen := 0, 0
			for seed := range uint64(9) {
				w, number := newSimulation(seed, proportions(40, 1, 1, 1), alike), map[string]float64{}
				for zone, share := range c.shares {
					number[zone] = 1000 * share
				}
				rate, shares := w.openDemand(number, c.long)
				w.hideOpen = true
				for w.now < 4*time.Hour {
					w.step(rate, shares)
				}
				w.hideOpen = false
				for w.now < 4*time.Hour+5*time.Minute {
					w.step(rate, shares)
				}
				if (w.publishedOpen != nil) != c.differ || c.differ && math.Abs(w.publishedOpen["b"]/c.shares["b"]-1) > 0.15 {
					t.Errorf("seed %d: after five minutes the shares of open connections are %v, want %v", seed, w.publishedOpen, c.shares)
				}
				for w.now < 8*time.Hour {
					if d := w.step(rate, shares); d.Open != nil {
						withOpen++
					}
				}
				published += w.publishedSince(5 * time.Hour)
			}
			t.Logf("published %.2f times an hour, open connections in %.0f %%", float64(published)/27, float64(withOpen)/9/4.7)
			if published > 27 {
				t.Errorf("published %d times in 27 hours, want at most 27", published)
			}
		})
	}
}
