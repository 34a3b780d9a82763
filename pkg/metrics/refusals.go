package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// refusals is the gauge of refused objects. All kinds change at once, which a vector of gauges cannot do: a scrape between
// its reset and its last set would see refusals vanish and return.
type refusals struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	byKind map[string]int
}

// set replaces all counts. A kind that once had refusals keeps its series, at zero, so that an alert on it ends rather than
// going stale.
func (r *refusals) set(byKind map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]int, len(byKind))
	for kind := range r.byKind {
		next[kind] = 0
	}
	maps.Copy(next, byKind)
	r.byKind = next
}

// Describe is one half of prometheus.Collector.
func (r *refusals) Describe(descs chan<- *prometheus.Desc) { descs <- r.desc }

// Collect is the other half of prometheus.Collector. The registry sorts what it is given.
func (r *refusals) Collect(series chan<- prometheus.Metric) {
	r.mu.Lock()
	byKind := r.byKind // never changed, only replaced
	r.mu.Unlock()
	for kind, n := range byKind {
		series <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, float64(n), kind)
	}
}
