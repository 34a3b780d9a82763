package demand

import (
	"maps"
	"math"
	"slices"
	"time"
)

// The parameters of the estimator were chosen together, by simulation. The tests state what they achieve.
const (
	// windowConnections is the effective number of connections in the slow average, independent of their rate.
	// windowPerZone is the number for each zone, if there are many zones.
	windowConnections, windowPerZone = 8000, 1000
	// minHalfLife and maxHalfLife bound the half-life of the slow average. With a minimum of one minute, chance alone
	// caused 2.4 publications an hour at 500 connections/s; with two minutes at most 1.6.
	minHalfLife, maxHalfLife = 2 * time.Minute, 30 * time.Minute
	// priorWeight is the number of pseudo-counts with the assumed distribution. They damp estimates from few connections.
	priorWeight = 30
	// minChangeSamples is the minimum number of connections for a change-point, and changeSigmas the minimum deviation.
	minChangeSamples, changeSigmas = 100, 4
	// maxFastChanges is how many changes in a row are applied in full; clients that move in the middle of an interval
	// cause that many. More may be feedback from the plan: clients retry where endpoints are overloaded, and retry the
	// more, the more connections the plan sends there. Applied in full, such changes would oscillate forever, so half of
	// each counts. After maxChangeCount changes it takes 18 samples without one until a change counts in full again.
	maxFastChanges, maxChangeCount = 2, 20
	// minShareDelta is an absolute difference of shares that is ignored, relativeBand one relative to the share, and
	// publishSigmas one relative to chance. A difference must exceed all three to be published. For many zones see
	// minDelta and adjustForZones.
	minShareDelta, relativeBand, publishSigmas = 0.002, 0.02, 3
	// baseZones is the number of zones for which these parameters were chosen.
	baseZones = 4
	// coarseBand replaces relativeBand in clusters with very many nodes, where each publication is expensive. A day of diurnal
	// load then takes 130 to 154 publications instead of 250, and the most loaded endpoint gets up to 1.30 instead of 1.27
	// times the mean.
	coarseBand = 0.05
	// An estimate starts at startThreshold connections in half an hour and stops below stopThreshold. The hysteresis
	// avoids flapping for Services near the limit.
	startThreshold, stopThreshold = 30, 15
	// minZoneSum is the sum below which a zone is dropped.
	minZoneSum = 1e-6
)

// without switches off one part of the estimator. Only the benchmark of its parts sets it.
var without string

// shortHalfLives are the half-lives of the fast averages, which detect changes. The last sample alone is tested before
// them.
var shortHalfLives = []time.Duration{2 * time.Minute, 8 * time.Minute}

// Sample is the demand on one Service in one interval.
type Sample struct {
	Took  time.Duration
	Zones map[string]float64 // new connections by zone, including those imputed for nodes that do not report
	Open  map[string]float64 // open connections by zone at the end of the interval
	// Pairs is the sum of x(x-1) over the nodes, where x is a node's number of new connections. With the total it shows
	// how concentrated the nodes are that connect.
	Pairs float64
}

func (s Sample) total() float64 {
	var sum float64
	for _, zone := range slices.Sorted(maps.Keys(s.Zones)) {
		sum += max(s.Zones[zone], 0)
	}
	return sum
}

// Reason is the reason of a decision.
type Reason string

// The reasons of decisions.
const (
	InsufficientData Reason = "too few connections"          // nothing is published
	First            Reason = "not published yet"            // to be published
	Changed          Reason = "differs from published"       // to be published
	Unchanged        Reason = "same as published"            // the published shares stay
	BelowThreshold   Reason = "no longer enough connections" // the published shares are to be deleted
)

// Decision is the result of a sample.
type Decision struct {
	Reason Reason
	// Shares are the fractions of connections by zone; they sum to 1. Nil with InsufficientData and BelowThreshold.
	Shares map[string]float64
	// Open are the fractions of open connections by zone. It is nil if they do not differ significantly from Shares.
	Open map[string]float64
	// EffectiveNodes is the number of nodes with equal demand that would be as concentrated as the nodes that connect,
	// rounded down to a power of two; 0 means that it is unknown.
	EffectiveNodes int32
	// ConnectionsPerMinute is the rate of the last minutes.
	ConnectionsPerMinute float64
	// ChangePoint is set if this sample caused a fast average to replace the slow one.
	ChangePoint bool
	// Skew is the largest ratio between a zone's share and its published share, in either direction; at least 1. If the
	// budget does not suffice for all writes, the Service with the largest is written first. With First it compares with
	// the assumed share.
	Skew float64
}

// Estimator estimates the demand on one Service. The zero value has no samples.
type Estimator struct {
	// Coarse makes it publish only differences of at least coarseBand.
	Coarse bool

	fast      [2]ewma // by shortHalfLives
	slow      ewma
	changes   int                // samples with a change, minus those without
	recent    ewma               // with the longest half-life: the connections of half an hour
	published map[string]float64 // published shares; nil means none
	// inheritedPrior is the published demand before the first sample. Its publisher had more samples than this estimator
	// has at first.
	inheritedPrior map[string]float64
}

// SetPublished sets the published shares, whichever replica published them; nil means none. Each sample repeats a
// decision until it is published, so a queued decision is not lost.
func (e *Estimator) SetPublished(shares map[string]float64) {
	e.published = maps.Clone(shares)
	if e.recent.seconds == 0 {
		e.inheritedPrior = e.published
	}
}

// expectedShare returns the share of a zone: measured, else published, else assumed.
func (e *Estimator) expectedShare(zone string, assumed map[string]float64) float64 {
	switch {
	case e.slow.total > 0:
		return e.slow.share(zone)
	case e.published != nil:
		return e.published[zone]
	}
	return assumed[zone]
}

// Add adds a sample. assumed are the zones' shares of the assumed demand; they sum to 1. A sample with a duration of
// zero has no rate, and is not added.
func (e *Estimator) Add(s Sample, assumed map[string]float64) Decision {
	var d Decision
	if s.Took > 0 {
		d.ChangePoint = e.addToAverages(s)
	}
	d.ConnectionsPerMinute = 60 * e.rate()
	// The sum for a steady rate is the connections of one half-life, divided by ln 2.
	inHalfAnHour := e.recent.total * math.Ln2
	switch {
	case e.published != nil && inHalfAnHour < stopThreshold && e.hasFullWindow():
		d.Reason = BelowThreshold
		return d
	case e.published == nil && inHalfAnHour < startThreshold:
		d.Reason = InsufficientData
		return d
	}
	d.Shares = e.shares(e.prior(assumed))
	reference := e.published
	if reference == nil {
		reference = assumed
	}
	d.Skew = maxRatio(d.Shares, reference)
	switch {
	case e.published == nil:
		d.Reason = First
	case exceedsNoise(d.Shares, e.published, e.slow.effectiveSamples()+priorWeight, e.band()):
		d.Reason = Changed
	default:
		d.Reason = Unchanged
	}
	return d
}

// hasFullWindow reports whether samples cover half an hour, so that a small sum means few connections.
func (e *Estimator) hasFullWindow() bool { return e.recent.seconds*math.Ln2 >= maxHalfLife.Seconds()/2 }

// prior returns the distribution of the pseudo-counts. After a leader change it is the published demand: with the
// assumed demand the first few samples would revert an estimate that is still valid.
func (e *Estimator) prior(assumed map[string]float64) map[string]float64 {
	if e.published != nil && e.inheritedPrior != nil && !e.hasFullWindow() && without != "inherited prior" {
		return e.inheritedPrior
	}
	return assumed
}

// rate returns the rate of the last minutes in connections per second.
func (e *Estimator) rate() float64 { return e.fast[len(e.fast)-1].rate() }

func (e *Estimator) band() float64 {
	if without == "fine band" {
		return coarseBand
	}
	if e.Coarse {
		return coarseBand
	}
	return relativeBand
}

// addToAverages adds a sample to all averages, and reports whether a faster one replaced the slow one.
func (e *Estimator) addToAverages(s Sample) bool {
	for i := range e.fast {
		e.fast[i].update(s, shortHalfLives[i])
	}
	e.recent.update(s, maxHalfLife)
	e.slow.update(s, halfLife(e.rate(), max(len(s.Zones), len(e.slow.zones))))
	var last ewma
	last.update(s, minHalfLife)
	averageNames := []string{"last sample", "2 min average", "8 min average"}
	for i, newer := range []*ewma{&last, &e.fast[0], &e.fast[1]} {
		if without == averageNames[i] || !hasChanged(newer, &e.slow) {
			continue
		}
		fast := newer.clone()
		if e.changes = min(e.changes+1, maxChangeCount); e.changes > maxFastChanges && without != "half changes" {
			fast.blend(&e.slow)
		}
		// Slower averages still contain samples from before the change, and would detect a change back.
		for j := i; j < len(e.fast); j++ {
			e.fast[j] = fast.clone()
		}
		e.slow = fast
		return true
	}
	e.changes = max(e.changes-1, 0)
	return false
}

// halfLife returns the half-life of the slow average for a rate and a number of zones. With it, the average is as
// certain as an unweighted average over the connections of the window.
func halfLife(rate float64, zones int) time.Duration {
	if rate == 0 {
		return maxHalfLife
	}
	seconds := min(0.35*max(windowConnections, windowPerZone*float64(zones))/rate, maxHalfLife.Seconds())
	return max(time.Duration(seconds*float64(time.Second)), minHalfLife)
}

// hasChanged reports whether the share of any zone differs significantly between two averages.
func hasChanged(newer, older *ewma) bool {
	samples := newer.effectiveSamples()
	if samples < minChangeSamples {
		return false
	}
	zones := zonesOf(newer.zones, older.zones)
	for zone := range zones {
		oldShare, newShare := older.share(zone), newer.share(zone)
		difference, mean := math.Abs(newShare-oldShare), (oldShare+newShare)/2
		chance := math.Hypot(stdDev(mean, samples), stdDev(mean, older.effectiveSamples()))
		if difference > minDelta(len(zones)) && difference > adjustForZones(changeSigmas, len(zones))*chance {
			return true
		}
	}
	return false
}

// shares returns the shares of the slow average, with pseudo-counts of the expected demand.
func (e *Estimator) shares(expected map[string]float64) map[string]float64 {
	samples, weight := e.slow.effectiveSamples(), float64(priorWeight)
	if len(expected) == 0 || without == "pseudo-counts" {
		weight = 0
	}
	shares := map[string]float64{}
	if samples+weight == 0 {
		return shares
	}
	for zone := range zonesOf(e.slow.zones, expected) {
		shares[zone] = (e.slow.share(zone)*samples + expected[zone]*weight) / (samples + weight)
	}
	if without == "shrinkage" {
		return shares
	}
	return shrinkToPrior(shares, expected, samples+weight)
}

// adjustForZones corrects a threshold for multiple comparisons: the largest deviation among many zones exceeds the
// result by chance as rarely as that among baseZones zones exceeds sigmas.
func adjustForZones(sigmas float64, zones int) float64 {
	if without == "many comparisons" {
		return sigmas
	}
	return math.Sqrt(sigmas*sigmas + 2*math.Log(max(1, float64(zones)/baseZones)))
}

// minDelta is the difference of shares that is ignored: floor or, with more than ten zones, 2 % of the mean share.
func minDelta(zones int) float64 {
	if without == "least difference" {
		return 0
	}
	return min(minShareDelta, relativeBand/max(1, float64(zones)))
}

// shrinkToPrior moves shares toward the expected ones, to the extent that chance explains the difference. With hundreds
// of zones there is always one with far too few counted connections; the load bound would not hold for those that its
// clients open. The deviation of a significant zone is not spread over the others: they share the rest in expected
// proportion.
func shrinkToPrior(shares, expected map[string]float64, samples float64) map[string]float64 {
	zones, sigmas := slices.Sorted(maps.Keys(shares)), adjustForZones(publishSigmas, len(shares))
	keptFraction := map[string]float64{} // the fraction of its measured share that each zone keeps
	scale := 1.0                         // the sum of all other shares, relative to the expected one; unknown in the first iteration
	for range 2 {
		shareSum, expectedSum := 0.0, 0.0
		for _, zone := range zones {
			keptFraction[zone] = significantFraction(shares[zone], scale*expected[zone], sigmas, samples)
			shareSum += (1 - keptFraction[zone]) * shares[zone]
			expectedSum += (1 - keptFraction[zone]) * expected[zone]
		}
		if expectedSum == 0 {
			return shares
		}
		scale = shareSum / expectedSum
	}
	for _, zone := range zones {
		shares[zone] = keptFraction[zone]*shares[zone] + (1-keptFraction[zone])*scale*expected[zone]
	}
	return shares
}

// significantFraction returns the fraction of the difference between two shares that is significant, from 0 to nearly 1. It is
// continuous, so a small change of the difference has a small effect. This is the non-negative garrote.
func significantFraction(share, expected, sigmas, samples float64) float64 {
	difference, chance := math.Abs(share-expected), sigmas*stdDev((share+expected)/2, samples)
	if difference <= chance {
		return 0
	}
	return 1 - chance*chance/(difference*difference)
}

// exceedsNoise reports whether the share of any zone has changed significantly, given the number of connections.
func exceedsNoise(shares, published map[string]float64, samples, band float64) bool {
	zones := zonesOf(shares, published)
	for zone := range zones {
		difference := math.Abs(shares[zone] - published[zone])
		// The published value is an estimate as well, with about the same certainty.
		chance := math.Sqrt2 * stdDev(shares[zone], samples)
		if difference > minDelta(len(zones)) && difference > band*published[zone] && difference > publishSigmas*chance {
			return true
		}
	}
	return false
}

// maxRatio returns the largest ratio between a share and its former value, at least 1. Shares below minDelta count as
// minDelta, so the ratio of a new zone is large but finite.
func maxRatio(shares, reference map[string]float64) float64 {
	ratio, minShare := 1.0, minDelta(len(shares))
	for zone := range shares {
		ratio = max(ratio, max(shares[zone], minShare)/max(reference[zone], minShare))
	}
	return ratio
}

// zonesOf returns the union of the zones.
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

// total adds up in the order of names: map order would change the last bits of the sum.
func total(zones map[string]float64) float64 {
	var sum float64
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		sum += zones[zone]
	}
	return sum
}
