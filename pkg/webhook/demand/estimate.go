package demand

import (
	"maps"
	"math"
	"slices"
	"time"
)

// The estimator's numbers were chosen together, by simulation: the tests say what they reach.
const (
	// windowConnections is how many connections the long average is about, whatever their rate, and rememberedByZone how many for each
	// zone, if there are many.
	windowConnections, windowPerZone = 8000, 1000
	// minHalfLife and longest bound the long average's half-life. With a minute as the shortest, chance alone caused 2.4
	// publications an hour at 500 connections a second; with two minutes at most 1.6.
	minHalfLife, maxHalfLife = 2 * time.Minute, 30 * time.Minute
	// priorWeight is how many connections of the assumed demand are added, so that a few counted connections have little weight.
	priorWeight = 30
	// minChangeSamples is the least number of connections that can indicate a change, and changeSigmas is how far off they must
	// be.
	minChangeSamples, changeSigmas = 100, 4
	// maxFastChanges is how many changes in a row clients make that move in the middle of an interval. More of them may come from
	// the plan: clients that ask again where endpoints are overloaded ask the more, the more the plan has sent there. Followed at
	// once, what they ask would swing for ever; half of each such change counts. After mostChanges of them it takes 18 samples
	// without one until all of a change counts again.
	maxFastChanges, maxChangeCount = 2, 20
	// floor is a difference of parts that is ignored, band is one relative to the part, and sayingSigmas is one relative
	// to chance. A change must exceed all three to be published. See ignored and ofAny for many zones.
	floor, band, publishSigmas = 0.002, 0.02, 3
	// baseZones is how many zones these numbers were chosen for.
	baseZones = 4
	// coarseBand is band where each publication goes to very many nodes: a day of loads that follow day and night is then 130
	// to 154 publications instead of 250, and the busiest endpoint gets up to 1.30 instead of 1.27 times the mean.
	coarseBand = 0.05
	// startThreshold connections in half an hour begin an estimate, tooFew end it. They differ, so that a Service near the limit
	// does not come and go.
	startThreshold, stopThreshold = 30, 15
	// dropBelow is a sum so small that its zone is dropped.
	dropBelow = 1e-6
)

// shortHalfLives are the half-lives of the averages that find changes. The last sample alone is looked at before them.
var shortHalfLives = []time.Duration{2 * time.Minute, 8 * time.Minute}

// Sample is the demand on one Service in some time.
type Sample struct {
	Took  time.Duration
	Zones map[string]float64 // connections of each zone, including the estimate for silent nodes
}

func (s Sample) all() float64 {
	var sum float64
	for _, zone := range slices.Sorted(maps.Keys(s.Zones)) {
		sum += max(s.Zones[zone], 0)
	}
	return sum
}

// Reason is why an estimate should be published, or not.
type Reason string

// The reasons.
const (
	InsufficientData Reason = "too few connections"       // the assumed demand is as good; nothing is said
	First            Reason = "nothing was said before"   // to be said
	Changed          Reason = "differs from what is said" // to be said
	Unchanged        Reason = "as is said"                // what is said stays
	BelowThreshold   Reason = "connections became few"    // what is said is to be withdrawn
)

// Decision is what a sample leads to.
type Decision struct {
	Reason Reason
	// Parts is each zone's part of the connections, 1 in all; nil with TooFew and Ended.
	Parts map[string]float64
	// ConnectionsPerMinute is the rate of the last minutes.
	ConnectionsPerMinute float64
	// ChangePoint: a short average replaced the long one in this sample.
	ChangePoint bool
	// Skew is the largest ratio of a zone's part to its published part, up or down; at least 1. If not all can be written, the
	// Service with the largest comes first. With First the assumed part stands for the published one.
	Skew float64
}

// Estimator follows what is asked of one Service. The zero value has heard nothing.
type Estimator struct {
	// Coarse: only differences from coarseBand on are published.
	Coarse bool

	fast      [2]ewma // by shortHalfLives
	slow      ewma
	changes   int                // samples with a change, less those without
	recent    ewma               // with the longest half-life: the connections of half an hour
	published map[string]float64 // parts; nil: nothing
	// inheritedPrior is what was said before the first sample. Whoever said it had heard more than this estimator has at first.
	inheritedPrior map[string]float64
}

// SetPublished takes in what parts are published, whoever did; nil: none. A decision is made again with each sample until they are, so
// that one that waits loses nothing.
func (e *Estimator) SetPublished(parts map[string]float64) {
	e.published = maps.Clone(parts)
	if e.recent.seconds == 0 {
		e.inheritedPrior = e.published
	}
}

// expectedShare returns the part of a zone as far as it is known: as it was measured, else as it is said, else as it is assumed.
func (e *Estimator) expectedShare(zone string, assumed map[string]float64) float64 {
	switch {
	case e.slow.all > 0:
		return e.slow.share(zone)
	case e.published != nil:
		return e.published[zone]
	}
	return assumed[zone]
}

// Add takes in a sample. Assumed is each zone's part in the assumed demand, 1 in all. A sample of no duration says
// nothing about a rate, and counts as one without connections.
func (e *Estimator) Add(s Sample, assumed map[string]float64) Decision {
	var d Decision
	if s.Took > 0 {
		d.ChangePoint = e.average(s)
	}
	d.ConnectionsPerMinute = 60 * e.rate()
	// A steady rate adds up to its half-life over ln 2.
	inHalfAnHour := e.recent.all * math.Ln2
	switch {
	case e.published != nil && inHalfAnHour < stopThreshold && e.hasFullWindow():
		d.Reason = BelowThreshold
		return d
	case e.published == nil && inHalfAnHour < startThreshold:
		d.Reason = InsufficientData
		return d
	}
	d.Parts = e.parts(e.prior(assumed))
	before := e.published
	if before == nil {
		before = assumed
	}
	d.Skew = maxRatio(d.Parts, before)
	switch {
	case e.published == nil:
		d.Reason = First
	case exceedsNoise(d.Parts, e.published, e.slow.effectiveSamples()+priorWeight, e.band()):
		d.Reason = Changed
	default:
		d.Reason = Unchanged
	}
	return d
}

// hasFullWindow reports whether it was listened for half an hour, so that few connections mean that few were made.
func (e *Estimator) hasFullWindow() bool { return e.recent.seconds*math.Ln2 >= maxHalfLife.Seconds()/2 }

// prior is the demand of which some connections are added. A successor that has heard little expects what is said: with the
// assumed demand its first few connections would take back what is still so.
func (e *Estimator) prior(assumed map[string]float64) map[string]float64 {
	if e.published != nil && e.inheritedPrior != nil && !e.hasFullWindow() {
		return e.inheritedPrior
	}
	return assumed
}

// rate is that of the last minutes, in connections a second.
func (e *Estimator) rate() float64 { return e.fast[len(e.fast)-1].rate() }

func (e *Estimator) band() float64 {
	if e.Coarse {
		return coarseBand
	}
	return band
}

// average adds a sample to all averages, and reports whether the long one was replaced.
func (e *Estimator) average(s Sample) bool {
	for i := range e.fast {
		e.fast[i].update(s, shortHalfLives[i])
	}
	e.recent.update(s, maxHalfLife)
	e.slow.update(s, halfLife(e.rate(), max(len(s.Zones), len(e.slow.zones))))
	var last ewma
	last.update(s, minHalfLife)
	for i, newer := range []*ewma{&last, &e.fast[0], &e.fast[1]} {
		if !hasChanged(newer, &e.slow) {
			continue
		}
		now := newer.copied()
		if e.changes = min(e.changes+1, maxChangeCount); e.changes > maxFastChanges {
			now.blend(&e.slow)
		}
		// Longer averages still contain the time before the change. They would indicate a change back.
		for j := i; j < len(e.fast); j++ {
			e.fast[j] = now.copied()
		}
		e.slow = now
		return true
	}
	e.changes = max(e.changes-1, 0)
	return false
}

// halfLife returns the long average's, for a rate and a number of zones: with it the average is as certain as one of the last
// remembered connections that weighs them equally.
func halfLife(rate float64, zones int) time.Duration {
	if rate == 0 {
		return maxHalfLife
	}
	seconds := min(0.35*max(windowConnections, windowPerZone*float64(zones))/rate, maxHalfLife.Seconds())
	return max(time.Duration(seconds*float64(time.Second)), minHalfLife)
}

// hasChanged reports whether some zone's part in a newer average differs so much from an older one that it cannot be
// chance.
func hasChanged(newer, older *ewma) bool {
	size := newer.effectiveSamples()
	if size < minChangeSamples {
		return false
	}
	zones := zonesOf(newer.zones, older.zones)
	for zone := range zones {
		was, is := older.share(zone), newer.share(zone)
		difference, mean := math.Abs(is-was), (was+is)/2
		chance := math.Hypot(stdDev(mean, size), stdDev(mean, older.effectiveSamples()))
		if difference > minDelta(len(zones)) && difference > adjustForZones(changeSigmas, len(zones))*chance {
			return true
		}
	}
	return false
}

// parts is the long average, with some connections of the demand that is expected.
func (e *Estimator) parts(expected map[string]float64) map[string]float64 {
	size, weight := e.slow.effectiveSamples(), float64(priorWeight)
	if len(expected) == 0 {
		weight = 0
	}
	parts := map[string]float64{}
	if size+weight == 0 {
		return parts
	}
	for zone := range zonesOf(e.slow.zones, expected) {
		parts[zone] = (e.slow.share(zone)*size + expected[zone]*weight) / (size + weight)
	}
	return shrinkToPrior(parts, expected, size+weight)
}

// adjustForZones returns how many sigmas off the farthest of many zones is by chance as rarely as the farthest of a few is that many.
func adjustForZones(sigmas float64, zones int) float64 {
	return math.Sqrt(sigmas*sigmas + 2*math.Log(max(1, float64(zones)/baseZones)))
}

// minDelta is a difference of parts that is ignored: the floor or, of more than ten zones, a fiftieth of what one has on average.
func minDelta(zones int) float64 { return min(floor, band/max(1, float64(zones))) }

// shrinkToPrior moves parts to what is expected as far as chance may explain the difference. With hundreds of zones there is always one
// of which far too few connections were counted; the bound would not hold for those that its clients make. What zones have that
// are not as expected is not expected of the others: they share the rest as expected.
func shrinkToPrior(parts, expected map[string]float64, size float64) map[string]float64 {
	zones, chance := slices.Sorted(maps.Keys(parts)), adjustForZones(publishSigmas, len(parts))
	own := map[string]float64{} // how much of its own part each zone keeps
	scale := 1.0                // what all others have, relative to what is expected; the first time it is not known yet
	for range 2 {
		rest, share := 0.0, 0.0
		for _, zone := range zones {
			own[zone] = shrinkage(parts[zone], scale*expected[zone], chance, size)
			rest += (1 - own[zone]) * parts[zone]
			share += (1 - own[zone]) * expected[zone]
		}
		if share == 0 {
			return parts
		}
		scale = rest / share
	}
	for _, zone := range zones {
		parts[zone] = own[zone]*parts[zone] + (1-own[zone])*scale*expected[zone]
	}
	return parts
}

// shrinkage returns how much of the difference between two parts is none of chance, which is so many sigmas: from 0 to nearly 1, and
// steadily, so that a little more does not change much. This is the non-negative garrote.
func shrinkage(part, expected, sigmas, size float64) float64 {
	difference, chance := math.Abs(part-expected), sigmas*stdDev((part+expected)/2, size)
	if difference <= chance {
		return 0
	}
	return 1 - chance*chance/(difference*difference)
}

// exceedsNoise reports whether some zone's part has changed, given the number of connections.
func exceedsNoise(now, before map[string]float64, size, band float64) bool {
	zones := zonesOf(now, before)
	for zone := range zones {
		difference := math.Abs(now[zone] - before[zone])
		// The published value is an estimate, too, and about as certain as this one.
		chance := math.Sqrt2 * stdDev(now[zone], size)
		if difference > minDelta(len(zones)) && difference > band*before[zone] && difference > publishSigmas*chance {
			return true
		}
	}
	return false
}

// maxRatio is the largest ratio of a part to its former value, at least 1. Anything below the floor counts as the floor: an
// unexpected zone is far off, but not infinitely.
func maxRatio(now, before map[string]float64) float64 {
	most, least := 1.0, minDelta(len(now))
	for zone := range now {
		most = max(most, max(now[zone], least)/max(before[zone], least))
	}
	return most
}

// zonesOf returns the zones of both.
func zonesOf(a, b map[string]float64) map[string]bool {
	zones := make(map[string]bool, len(a)+len(b))
	for zone := range a {
		zones[zone] = true
	}
	for zone := range b {
		zones[zone] = true
	}
	return zones
}

// total adds in the order of names: the order of a map would change the last bits.
func total(zones map[string]float64) float64 {
	var sum float64
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		sum += zones[zone]
	}
	return sum
}
