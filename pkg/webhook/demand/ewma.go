package demand

import (
	"maps"
	"math"
	"time"
)

// ewma is an exponentially weighted sum of connections, by zone.
type ewma struct {
	zones map[string]float64
	total float64
	// squares is the sum of the squared weights of connections: the variance of the sum if connections arrive at random.
	squares float64
	seconds float64 // the sampled time, weighted in the same way
}

// update decays the sums, and adds a sample. Zones that are not in the sample decay as well: otherwise a zone without
// connections would keep its share forever.
func (e *ewma) update(s Sample, halfLife time.Duration) {
	decay := math.Exp2(-s.Took.Seconds() / halfLife.Seconds())
	if e.zones == nil {
		e.zones = map[string]float64{}
	}
	for zone := range e.zones {
		if e.zones[zone] *= decay; e.zones[zone] < minZoneSum {
			delete(e.zones, zone)
		}
	}
	e.squares = e.squares*decay*decay + s.total()
	e.seconds = e.seconds*decay + s.Took.Seconds()
	for zone, connections := range s.Zones {
		if connections > 0 {
			e.zones[zone] += connections
		}
	}
	e.total = total(e.zones)
}

// clone returns a copy that shares no memory with the original.
func (e *ewma) clone() ewma {
	other := *e
	other.zones = maps.Clone(e.zones)
	return other
}

// blend sets the share of each zone to the mean of its shares in this average and in other, which must not be empty.
func (e *ewma) blend(other *ewma) {
	for zone := range zonesOf(e.zones, other.zones) {
		e.zones[zone] = (e.zones[zone] + other.share(zone)*e.total) / 2
	}
	e.total = total(e.zones)
}

// effectiveSamples returns the number of equally weighted connections with the same certainty (Kish's effective sample
// size).
func (e *ewma) effectiveSamples() float64 {
	if e.squares == 0 {
		return 0
	}
	return e.total * e.total / e.squares
}

// rate returns connections per second.
func (e *ewma) rate() float64 {
	if e.seconds == 0 {
		return 0
	}
	return e.total / e.seconds
}

// share returns a zone's share of all connections.
func (e *ewma) share(zone string) float64 {
	if e.total == 0 {
		return 0
	}
	return e.zones[zone] / e.total
}

// stdDev returns the standard deviation of a share that was estimated from a number of samples. A share of zero is as
// uncertain as that of one connection: otherwise the first connection of a zone would always be significant.
func stdDev(share, samples float64) float64 {
	share = min(max(share, 1/samples), 0.5)
	return math.Sqrt(share * (1 - share) / samples)
}
