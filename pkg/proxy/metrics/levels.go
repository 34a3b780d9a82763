package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// levels is a gauge of how many there are of each kind at present. All kinds change at once, which a vector of gauges cannot do: a
// scrape between its reset and its last set would see them vanish and return. K holds the values of the labels.
type levels[K comparable] struct {
	desc   *prometheus.Desc
	values func(K) []string

	mu sync.Mutex
	of map[K]int
}

func newLevels[K comparable](name, help string, values func(K) []string, labels ...string) *levels[K] {
	return &levels[K]{desc: prometheus.NewDesc(name, help, labels, nil), values: values, of: map[K]int{}}
}

// set replaces all numbers. A kind of which there once were some keeps its series, at zero, so that an alert on it ends rather than
// going stale.
func (l *levels[K]) set(of map[K]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := make(map[K]int, len(of))
	for kind := range l.of {
		next[kind] = 0
	}
	maps.Copy(next, of)
	l.of = next
}

// Describe is one half of prometheus.Collector.
func (l *levels[K]) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect is the other half of prometheus.Collector. The registry sorts what it is given.
func (l *levels[K]) Collect(series chan<- prometheus.Metric) {
	l.mu.Lock()
	of := l.of // never changed, only replaced
	l.mu.Unlock()
	for kind, n := range of {
		series <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(n), l.values(kind)...)
	}
}
