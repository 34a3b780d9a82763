package demand

import (
	"math"
	"slices"
	"time"
)

// maxWindow is the minimum length of the window while shares stay the same. The oldest samples are dropped together.
const maxWindow = time.Hour

// window is an adaptive window of samples (ADWIN: Bifet and Gavaldà, 2007): it has the last one to two hours or, if the
// share of any zone has changed, what came after the latest change-point. Samples are merged, the more the older they
// are.
type window struct {
	zones   []string  // sorted
	sums    []float64 // connections by index of the zone
	buckets []bucket  // the newest first
}

// bucket has the connections of successive samples, by index of the zone.
type bucket struct {
	counts  []float64
	seconds float64
}

// add adds connections by zone.
func (w *window) add(took time.Duration, zones map[string]float64) {
	for zone, connections := range zones {
		if i, isKnown := slices.BinarySearch(w.zones, zone); !isKnown && connections > 0 {
			w.zones = slices.Insert(w.zones, i, zone)
			for b := range w.buckets {
				w.buckets[b].counts = slices.Insert(w.buckets[b].counts, i, 0)
			}
		}
	}
	newest := bucket{make([]float64, len(w.zones)), took.Seconds()}
	for i, zone := range w.zones {
		newest.counts[i] = max(zones[zone], 0)
	}
	w.buckets = slices.Insert(w.buckets, 0, newest)
	newer := 0.0
	for i := 0; i+1 < len(w.buckets); {
		next := w.buckets[i+1]
		switch merged := w.buckets[i].seconds + next.seconds; {
		case newer >= maxWindow.Seconds():
			w.buckets = slices.Delete(w.buckets, i, len(w.buckets))
		case merged <= newer:
			addTo(w.buckets[i].counts, next.counts)
			w.buckets[i].seconds = merged
			w.buckets = slices.Delete(w.buckets, i+1, i+2)
		default:
			newer += w.buckets[i].seconds
			i++
		}
	}
	w.sum()
}

// sum adds up the buckets, and drops zones without connections.
func (w *window) sum() {
	w.sums = make([]float64, len(w.zones))
	for _, b := range w.buckets {
		addTo(w.sums, b.counts)
	}
	for i, sum := range slices.Backward(w.sums) {
		if sum == 0 {
			w.zones, w.sums = slices.Delete(w.zones, i, i+1), slices.Delete(w.sums, i, i+1)
			for b := range w.buckets {
				w.buckets[b].counts = slices.Delete(w.buckets[b].counts, i, i+1)
			}
		}
	}
}

// cut drops all samples before the latest change-point, and returns by how much the share of each zone has changed; nil
// if there is no change-point.
func (w *window) cut() (change map[string]float64) {
	for end := w.changePoint(); end > 0; end = w.changePoint() {
		if change == nil {
			change = w.shares()
		}
		w.buckets = slices.Delete(w.buckets, end, len(w.buckets))
		w.sum()
	}
	if change == nil {
		return nil
	}
	after := w.shares()
	for zone := range zonesOf(change, after) {
		change[zone] = after[zone] - change[zone]
	}
	return change
}

// changePoint returns the number of buckets after the most significant change of a zone's share, or 0.
func (w *window) changePoint() int {
	recent, limit, newer := make([]float64, len(w.zones)), adjustForZones(changeSigmas, len(w.zones)), 0
	for i := range len(w.buckets) - 1 {
		addTo(recent, w.buckets[i].counts)
		if z := maxDeviation(recent, w.sums); z > limit {
			limit, newer = z, i+1
		}
	}
	return newer
}

// maxDeviation returns by how many standard deviations the share of any zone has changed, given the recent connections
// and all connections.
func maxDeviation(recent, all []float64) float64 {
	newer := sumOf(recent)
	older := sumOf(all) - newer
	if min(newer, older) < minConnections {
		return 0
	}
	deviation := 0.0
	for i := range all {
		newShare, oldShare := recent[i]/newer, (all[i]-recent[i])/older
		mean := (newShare + oldShare) / 2
		deviation = max(deviation, math.Abs(newShare-oldShare)/math.Hypot(stdDev(mean, newer), stdDev(mean, older)))
	}
	return deviation
}

// total returns the number of connections.
func (w *window) total() float64 { return sumOf(w.sums) }

// shares returns each zone's share of all connections.
func (w *window) shares() map[string]float64 {
	shares, total := make(map[string]float64, len(w.zones)), w.total()
	for i, zone := range w.zones {
		shares[zone] = w.sums[i] / total
	}
	return shares
}

func addTo(sums, counts []float64) {
	for i, count := range counts {
		sums[i] += count
	}
}

func sumOf(counts []float64) float64 {
	var sum float64
	for _, count := range counts {
		sum += count
	}
	return sum
}

// stdDev returns the standard deviation of a share that was estimated from a number of samples. A share of zero is as
// uncertain as that of one connection: otherwise the first connection of a zone would always be significant.
func stdDev(share, samples float64) float64 {
	share = min(max(share, 1/samples), 0.5)
	return math.Sqrt(share * (1 - share) / samples)
}

// adjustForZones corrects a threshold for multiple comparisons: the largest deviation among many zones exceeds the
// result by chance as rarely as that among four zones exceeds sigmas.
func adjustForZones(sigmas float64, zones int) float64 {
	return math.Sqrt(sigmas*sigmas + 2*math.Log(max(1, float64(zones)/baseZones)))
}
