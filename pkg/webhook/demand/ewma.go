package demand

import (
	"maps"
	"math"
	"time"
)

// ewma is an exponentially weighted sum of connections, by zone.
type ewma struct {
	zones map[string]float64
	all   float64
	// squares is the sum of the squared weights of connections: the variance of the sum if connections arrive at random.
	squares float64
	seconds float64 // the sampled time, weighted in the same way
}

// update decays the sums, and adds a sample. Zones that are not in the sample decay as well: otherwise a zone without
// connections would keep its share forever.
func (a *ewma) update(s Sample, halfLife time.Duration) {
	fade := math.Exp2(-s.Took.Seconds() / halfLife.Seconds())
	if a.zones == nil {
		a.zones = map[string]float64{}
	}
	for zone := range a.zones {
		if a.zones[zone] *= fade; a.zones[zone] < dropBelow {
			delete(a.zones, zone)
		}
	}
	a.squares = a.squares*fade*fade + s.all()
	a.seconds = a.seconds*fade + s.Took.Seconds()
	for zone, connections := range s.Zones {
		if connections > 0 {
			a.zones[zone] += connections
		}
	}
	a.all = total(a.zones)
}

// copied returns a copy that shares no memory with the original.
func (a *ewma) copied() ewma {
	other := *a
	other.zones = maps.Clone(a.zones)
	return other
}

// blend sets the share of each zone to the mean of its shares in this average and in other, which must not be empty.
func (a *ewma) blend(other *ewma) {
	for zone := range zonesOf(a.zones, other.zones) {
		a.zones[zone] = (a.zones[zone] + other.share(zone)*a.all) / 2
	}
	a.all = total(a.zones)
}

// effectiveSamples returns the number of equally weighted connections with the same certainty (Kish's effective sample
// size).
func (a *ewma) effectiveSamples() float64 {
	if a.squares == 0 {
		return 0
	}
	return a.all * a.all / a.squares
}

// rate returns connections per second.
func (a *ewma) rate() float64 {
	if a.seconds == 0 {
		return 0
	}
	return a.all / a.seconds
}

// share returns a zone's share of all connections.
func (a *ewma) share(zone string) float64 {
	if a.all == 0 {
		return 0
	}
	return a.zones[zone] / a.all
}

// stdDev returns the standard deviation of a share of size connections. A share of zero is as uncertain as that of one
// connection: otherwise the first connection of a zone would always be significant.
func stdDev(part, size float64) float64 {
	part = min(max(part, 1/size), 0.5)
	return math.Sqrt(part * (1 - part) / size)
}
