package demand

import (
	"maps"
	"math"
	"slices"
	"time"
)

// The parameters of the estimator. README.md has what each is for; the benchmark of that switches each off, so some are
// variables.
var (
	minConnections = 100.0 // of an estimate, and on either side of a change-point
	changeSigmas   = 5.0   // the minimum deviation of a change-point
	// shrinkSigmas is the deviation from the assumed demand that chance explains, and publishSigmas that of the published
	// demand from an estimate. They and changeSigmas are for baseZones zones; among more zones the largest one is larger.
	shrinkSigmas, publishSigmas, baseZones = 3.0, 3.0, 4.0
	relativeBand                           = 0.02   // a change that is not published, relative to the share
	publishedWeight                        = 1000.0 // what the published demand counts for in a new leader's window, in connections
	// A reversal is a change-point within reversalTime of one in the other direction. It adds half of oscillationLimit to
	// the oscillation, which decreases with time. The third in a row exceeds the limit, and ends detection for an hour.
	reversalTime = 3 * time.Minute
)

const (
	oscillationLimit = 30 * time.Minute
	// An estimate starts at startRate connections per second and ends below stopRate.
	startRate, stopRate        = 0.2, 0.1
	rateHalfLife, openHalfLife = 8 * time.Minute, 2 * time.Minute
	minShareDelta              = 0.002 // the smallest share in ratios
)

// Sample is the demand on one Service in one interval.
type Sample struct {
	Took  time.Duration
	Zones map[string]float64 // new connections by zone, including those imputed for nodes that do not report
	Open  map[string]float64 // open connections by zone at the end of the interval
	// Pairs is the sum of x(x-1) over the nodes, where x is a node's number of new connections. With the total it shows
	// how concentrated the nodes are that connect.
	Pairs float64
	// Nodes is the number of all nodes.
	Nodes int
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
	// ChangePoint is set if this sample shows that the share of a zone has changed.
	ChangePoint bool
	// Oscillates is set if the demand changed to and fro with the plans made for it. Shares are then the mean of up to two
	// hours.
	Oscillates bool
	// Skew is the largest ratio between a zone's share and its published share, in either direction; at least 1. If the
	// budget does not suffice for all writes, the Service with the largest is written first. With First it compares with
	// the assumed share.
	Skew float64
}

// Estimator estimates the demand on one Service. The zero value has no samples.
type Estimator struct {
	window window
	recent recent
	open   map[string]float64 // EWMA of the open connections by zone

	published, publishedOpen map[string]float64
	publishedNodes           int32

	lastChange  map[string]float64 // of each zone's share
	sinceChange time.Duration
	oscillation time.Duration
}

// SetPublished sets what is published, whichever replica published it; nil shares mean nothing. Each sample repeats a
// decision until it is published, so a queued decision is not lost.
func (e *Estimator) SetPublished(shares, open map[string]float64, effectiveNodes int32) {
	e.published, e.publishedOpen, e.publishedNodes = shares, open, effectiveNodes
	if len(e.window.buckets) == 0 && len(shares) > 0 {
		connections := map[string]float64{}
		for zone, share := range shares {
			connections[zone] = share * publishedWeight
		}
		e.window.add(maxWindow, connections)
	}
}

// Add adds a sample. assumed are the zones' shares of the assumed demand; they sum to 1. A sample with a duration of
// zero has no rate, and is not added.
func (e *Estimator) Add(s Sample, assumed map[string]float64) Decision {
	var d Decision
	if s.Took > 0 {
		d.ChangePoint = e.add(s)
	}
	rate, samples := e.recent.connections/max(e.recent.seconds, 1), e.window.total()
	d.ConnectionsPerMinute, d.Oscillates = 60*rate, e.oscillates()
	switch {
	case e.published != nil && rate < stopRate && e.recent.seconds > rateHalfLife.Seconds():
		d.Reason = BelowThreshold
		return d
	case e.published == nil && (rate < startRate || samples < minConnections):
		d.Reason = InsufficientData
		return d
	}
	d.Shares, _ = shrink(e.window.shares(), assumed, samples)
	d.EffectiveNodes = e.recent.effectiveNodes(e.publishedNodes, s.Nodes)
	open, openSamples, differs := e.openShares(d.Shares, total(s.Open), samples)
	if differs {
		d.Open = open
	}
	if e.published == nil {
		d.Reason, d.Skew = First, maxRatio(d.Shares, assumed)
		return d
	}
	publishedOpen := e.publishedOpen
	if publishedOpen == nil {
		publishedOpen = e.published
	}
	d.Reason, d.Skew = Unchanged, max(maxRatio(d.Shares, e.published), maxRatio(open, publishedOpen))
	if exceedsNoise(d.Shares, e.published, samples) || exceedsNoise(open, publishedOpen, openSamples) ||
		d.EffectiveNodes != e.publishedNodes {
		d.Reason = Changed
	}
	return d
}

// openShares returns the shares of open connections and for how many samples they stand, given the shares of new ones
// and the numbers of both; and whether they differ significantly from those of new ones.
func (e *Estimator) openShares(shares map[string]float64, open, samples float64) (map[string]float64, float64, bool) {
	if open < minConnections/2 || open < minConnections && e.publishedOpen == nil {
		return shares, samples, false
	}
	measured, all := map[string]float64{}, total(e.open)
	for zone, connections := range e.open {
		measured[zone] = connections / all
	}
	samples = open * samples / (open + samples)
	result, differs := shrink(measured, shares, samples)
	return result, samples, differs
}

// add adds a sample, and reports whether it shows a change.
func (e *Estimator) add(s Sample) bool {
	e.addOpen(s)
	e.window.add(s.Took, s.Zones)
	e.sinceChange, e.oscillation = e.sinceChange+s.Took, max(0, e.oscillation-s.Took)
	var change map[string]float64
	if !e.oscillates() {
		change = e.window.cut()
	}
	if change != nil {
		if e.sinceChange <= reversalTime && product(change, e.lastChange) < 0 {
			if e.oscillation += oscillationLimit / 2; e.oscillates() {
				e.oscillation = 3 * oscillationLimit
			}
		}
		e.lastChange, e.sinceChange, e.recent = change, 0, recent{}
	}
	e.recent.add(s)
	return change != nil
}

func (e *Estimator) oscillates() bool { return e.oscillation > oscillationLimit }

// addOpen adds the open connections. Successive samples contain the same ones, so only those of the last sample count
// as independent.
func (e *Estimator) addOpen(s Sample) {
	open := map[string]float64{}
	for zone := range zonesOf(e.open, s.Open) {
		sum := e.open[zone]*decay(s.Took, openHalfLife) + max(s.Open[zone], 0)*s.Took.Seconds()
		if sum > 1e-6 {
			open[zone] = sum
		}
	}
	e.open = open
}

// recent is an EWMA of the samples of the last minutes.
type recent struct {
	connections, seconds float64
	all, pairs           float64 // pairs of connections in the same sample: all, and those from the same node
}

func (r *recent) add(s Sample) {
	old, connections := decay(s.Took, rateHalfLife), total(s.Zones)
	r.connections = r.connections*old + connections
	r.seconds = r.seconds*old + s.Took.Seconds()
	r.all = r.all*old + connections*(connections-1)
	r.pairs = r.pairs*old + s.Pairs
}

// effectiveNodes returns the number of nodes with equal demand that would be as concentrated as the nodes that connect
// (Kish's effective sample size), rounded down to a power of two. It stays at the published number while that is about
// right. It is 0 if it is unknown, or so large a part of all nodes that plans need not know it.
func (r *recent) effectiveNodes(published int32, all int) int32 {
	nodes := r.all / max(r.pairs, minConnections) // with fewer pairs that is a lower bound
	notable := float64(all) / 8
	if published > 0 {
		notable = float64(all) / 2
	}
	switch p := float64(published); {
	case nodes > notable:
		return 0
	case published > 0 && nodes <= 2.5*p && (nodes >= 0.8*p || r.pairs < minConnections):
		return published
	case r.pairs < minConnections:
		return 0
	}
	return int32(math.Exp2(math.Floor(math.Log2(min(max(1.1*nodes, 1), math.MaxInt16)))))
}

// decay returns what an EWMA keeps of its sums.
func decay(took, halfLife time.Duration) float64 {
	return math.Exp2(-took.Seconds() / halfLife.Seconds())
}

// shrink moves shares toward the expected ones, to the extent that chance explains the difference, and reports whether
// any still differs. With hundreds of zones there is always one with far too few counted connections; the load bound
// would not hold for those that its clients open. The deviation of a significant zone is not spread over the others:
// they share the rest in expected proportion.
func shrink(measured, expected map[string]float64, samples float64) (shares map[string]float64, differ bool) {
	shares, kept := map[string]float64{}, map[string]float64{} // kept is the fraction of its measured share that a zone keeps
	zones := slices.Sorted(maps.Keys(zonesOf(measured, expected)))
	sigmas := adjustForZones(shrinkSigmas, len(zones))
	scale := 1.0 // the sum of all other shares, relative to the expected one; unknown in the first iteration
	for range 2 {
		measuredSum, expectedSum := 0.0, 0.0
		for _, zone := range zones {
			kept[zone] = significantFraction(measured[zone], scale*expected[zone], sigmas, samples)
			measuredSum += (1 - kept[zone]) * measured[zone]
			expectedSum += (1 - kept[zone]) * expected[zone]
		}
		if expectedSum == 0 {
			return maps.Clone(measured), true
		}
		scale = measuredSum / expectedSum
	}
	for _, zone := range zones {
		shares[zone] = kept[zone]*measured[zone] + (1-kept[zone])*scale*expected[zone]
		differ = differ || kept[zone] > 0
	}
	return shares, differ
}

// significantFraction returns the fraction of the difference between two shares that is significant, from 0 to nearly
// 1. It is continuous, so a small change of the difference has a small effect. This is the non-negative garrote.
func significantFraction(share, expected, sigmas, samples float64) float64 {
	difference, chance := math.Abs(share-expected), sigmas*stdDev((share+expected)/2, samples)
	if difference <= chance {
		return 0
	}
	return 1 - chance*chance/(difference*difference)
}

// exceedsNoise reports whether the published share of any zone differs significantly from its estimate.
func exceedsNoise(shares, published map[string]float64, samples float64) bool {
	for zone := range zonesOf(shares, published) {
		difference := math.Abs(shares[zone] - published[zone])
		if difference > relativeBand*published[zone] && difference > publishSigmas*stdDev(shares[zone], samples) {
			return true
		}
	}
	return false
}

// maxRatio returns the largest ratio between a share and its former value, at least 1. Shares below minShareDelta count
// as that, so the ratio of a new zone is large but finite.
func maxRatio(shares, reference map[string]float64) float64 {
	ratio := 1.0
	for zone := range shares {
		ratio = max(ratio, max(shares[zone], minShareDelta)/max(reference[zone], minShareDelta))
	}
	return ratio
}

// zonesOf returns the union of the zones.
func zonesOf(all ...map[string]float64) map[string]bool {
	zones := map[string]bool{}
	for _, shares := range all {
		for zone := range shares {
			zones[zone] = true
		}
	}
	return zones
}

// product returns the dot product; it is negative if two changes have opposite directions.
func product(a, b map[string]float64) float64 {
	var sum float64
	for _, zone := range slices.Sorted(maps.Keys(a)) {
		sum += a[zone] * b[zone]
	}
	return sum
}

// total adds up in the order of names: map order would change the last bits of the sum.
func total(zones map[string]float64) float64 {
	var sum float64
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		sum += max(zones[zone], 0)
	}
	return sum
}
