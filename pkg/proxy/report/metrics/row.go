package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// row declares a metric. A new one is a row in table.go, and the line that observes it.
type row struct {
	name, help string
	labels     []string
	buckets    []float64 // of a histogram: the upper bounds
	// start holds, for each label, the values whose series exist from the start, at zero, so that a rate over the first
	// increment is right. Without it a series exists once it is observed: a time at zero would mean 1970. A metric without
	// labels always exists.
	start [][]string
	kind  string // as in the exposition format; set by the row's constructor
}

// rows are all rows, in the order of table.go. They are only written during package initialisation.
var rows []declaredRow

type declaredRow interface {
	declaration() row
	addTo(*Recorder)
}

// Metric is a row whose values are in a collector of type C, one in each Recorder.
type Metric[C prometheus.Collector] struct {
	row
	build func() C
}

// Counter is a row that Recorder.Add observes.
type Counter = *Metric[*prometheus.CounterVec]

// Gauge is a row that Recorder.Set observes.
type Gauge = *Metric[*prometheus.GaugeVec]

// Collected is a row whose values a function provides: see Recorder.CollectFrom.
type Collected = *Metric[*funcCollector]

// Histogram is a row that Recorder.Observe observes.
type Histogram = *Metric[*prometheus.HistogramVec]

func declare[C prometheus.Collector](kind string, r row, build func() C) *Metric[C] {
	r.kind = kind
	m := &Metric[C]{row: r, build: build}
	rows = append(rows, m)
	return m
}

func (m *Metric[C]) declaration() row { return m.row }

func (m *Metric[C]) addTo(r *Recorder) {
	collector := m.build()
	r.registry.MustRegister(collector)
	r.collectors[m.name] = collector
}

// collector returns the row's collector in a recorder.
func (m *Metric[C]) collector(r *Recorder) C { return r.collectors[m.name].(C) }

func counter(r row) Counter {
	return declare("counter", r, func() *prometheus.CounterVec {
		counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.name, Help: r.help}, r.labels)
		r.initialSeries(func(values []string) { counts.WithLabelValues(values...) })
		return counts
	})
}

func gauge(r row) Gauge {
	return declare("gauge", r, func() *prometheus.GaugeVec {
		gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: r.name, Help: r.help}, r.labels)
		r.initialSeries(func(values []string) { gauges.WithLabelValues(values...) })
		return gauges
	})
}

func histogram(r row) Histogram {
	return declare("histogram", r, func() *prometheus.HistogramVec {
		histograms := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: r.name, Help: r.help, Buckets: r.buckets}, r.labels)
		r.initialSeries(func(values []string) { histograms.WithLabelValues(values...) })
		return histograms
	})
}

// counterFunc declares a counter whose values a function provides, and gaugeFunc such a gauge.
func counterFunc(r row) Collected { return declareFunc("counter", prometheus.CounterValue, r) }

func gaugeFunc(r row) Collected { return declareFunc("gauge", prometheus.GaugeValue, r) }

func declareFunc(kind string, valueType prometheus.ValueType, r row) Collected {
	return declare(kind, r, func() *funcCollector {
		return &funcCollector{desc: prometheus.NewDesc(r.name, r.help, r.labels, nil), labels: len(r.labels), kind: valueType}
	})
}

// series are the values of a metric's labels, at most five.
type series [5]string

func seriesOf(values ...string) series {
	var s series
	copy(s[:], values)
	return s
}

// funcCollector calls a function at every scrape. Without a function the value is zero or, if there are labels, there
// is no series.
type funcCollector struct {
	desc    *prometheus.Desc
	labels  int
	kind    prometheus.ValueType
	collect atomic.Pointer[func() map[series]float64]
}

func (c *funcCollector) collectWith(collect func() map[series]float64) { c.collect.Store(&collect) }

// Describe implements prometheus.Collector.
func (c *funcCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector. The registry sorts the metrics.
func (c *funcCollector) Collect(metrics chan<- prometheus.Metric) {
	counts := map[series]float64{}
	switch collect := c.collect.Load(); {
	case collect != nil:
		counts = (*collect)()
	case c.labels == 0:
		counts[seriesOf()] = 0
	}
	for labelValues, n := range counts {
		metrics <- prometheus.MustNewConstMetric(c.desc, c.kind, n, labelValues[:c.labels]...)
	}
}

// initialSeries calls a function with the label values of each series that exists from the start.
func (r row) initialSeries(create func(values []string)) {
	if len(r.start) != len(r.labels) {
		return
	}
	all := [][]string{nil}
	for _, values := range r.start {
		var longer [][]string
		for _, prefix := range all {
			for _, value := range values {
				longer = append(longer, append(slices.Clone(prefix), value))
			}
		}
		all = longer
	}
	for _, values := range all {
		create(values)
	}
}
