package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// levels is a gauge of how many there are of each kind at present. All series change at once, which a vector of gauges
// cannot do: a scrape between its reset and its last set would see them vanish and return.
type levels struct {
	desc   *prometheus.Desc
	labels int

	mu     sync.Mutex
	values map[series]float64
}

// series is the values of a metric's labels: five at most.
type series [5]string

func seriesOf(values ...string) series {
	var s series
	copy(s[:], values)
	return s
}

func newLevels(r row) *levels {
	return &levels{desc: prometheus.NewDesc(r.name, r.help, r.labels, nil), labels: len(r.labels)}
}

// set replaces all numbers. A kind that once had any keeps its series, at zero, so that an alert on it ends rather than
// going stale.
func (l *levels) set(values map[series]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := make(map[series]float64, len(values))
	for kind := range l.values {
		next[kind] = 0
	}
	maps.Copy(next, values)
	l.values = next
}

// Describe is one half of prometheus.Collector.
func (l *levels) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect is the other half of prometheus.Collector. The registry sorts what it is given.
func (l *levels) Collect(metrics chan<- prometheus.Metric) {
	l.mu.Lock()
	values := l.values // never changed, only replaced
	l.mu.Unlock()
	for kind, n := range values {
		metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, n, kind[:l.labels]...)
	}
}
