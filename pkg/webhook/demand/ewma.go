package demand

import (
	"maps"
	"math"
	"time"
)

// ewma is a sum of connections in which older ones weigh less.
type ewma struct {
	zones map[string]float64
	all   float64
	// squares is the sum of the squared weights of connections: the variance of the sum if connections arrive at random.
	squares float64
	seconds float64 // the time of listening, weighed in the same way
}

// update lets the old sums fade, and adds a sample. Zones that are not in the sample fade like the others: otherwise a
// zone that fell silent would keep its part for ever.
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

// copied returns an average that shares no memory with this one.
func (a *ewma) copied() ewma {
	other := *a
	other.zones = maps.Clone(a.zones)
	return other
}

// blend gives each zone the mean of its parts in this average and in another one, which has connections.
func (a *ewma) blend(other *ewma) {
	for zone := range zonesOf(a.zones, other.zones) {
		a.zones[zone] = (a.zones[zone] + other.share(zone)*a.all) / 2
	}
	a.all = total(a.zones)
}

// effectiveSamples returns the number of equally weighted connections that would make the parts equally certain.
func (a *ewma) effectiveSamples() float64 {
	if a.squares == 0 {
		return 0
	}
	return a.all * a.all / a.squares
}

// rate returns connections a second.
func (a *ewma) rate() float64 {
	if a.seconds == 0 {
		return 0
	}
	return a.all / a.seconds
}

// share returns a zone's part of all.
func (a *ewma) share(zone string) float64 {
	if a.all == 0 {
		return 0
	}
	return a.zones[zone] / a.all
}

// stdDev returns the standard deviation of a part in so many connections. A part of zero is as uncertain as that of a
// single connection: otherwise the first connection of a silent zone could never be chance.
func stdDev(part, size float64) float64 {
	part = min(max(part, 1/size), 0.5)
	return math.Sqrt(part * (1 - part) / size)
}
