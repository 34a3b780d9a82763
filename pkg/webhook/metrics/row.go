package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// kind is a metric type.
type kind int

const (
	counter kind = iota
	gauge
	histogram
)

// row defines a metric.
type row struct {
	kind       kind
	name, help string
	labels     []string
	buckets    []float64 // of a histogram
	// initialValues lists the initial values of each label. There is a series at zero for each combination; nil means
	// that there are none until one is set. Further values may appear later.
	initialValues [][]string
}

// initZero is for a metric without labels that exists from the start.
var initZero = [][]string{}

// rows are all metrics.
var rows []*row

func declare(r row) *row {
	rows = append(rows, &r)
	return &r
}

// register creates and registers a metric, with its initial series.
func (r *Recorder) register(registerer prometheus.Registerer, row *row) error {
	var series func(values ...string)
	var collector prometheus.Collector
	switch row.kind {
	case counter:
		vector := prometheus.NewCounterVec(prometheus.CounterOpts{Name: row.name, Help: row.help}, row.labels)
		r.counters[row], collector = vector, vector
		series = func(values ...string) { vector.WithLabelValues(values...) }
	case gauge:
		vector := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: row.name, Help: row.help}, row.labels)
		r.gauges[row], collector = vector, vector
		series = func(values ...string) { vector.WithLabelValues(values...) }
	case histogram:
		vector := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: row.name, Help: row.help, Buckets: row.buckets}, row.labels)
		r.histograms[row], collector = vector, vector
		series = func(values ...string) { vector.WithLabelValues(values...) }
	}
	if row.initialValues != nil {
		forEachCombination(row.initialValues, nil, series)
	}
	return registerer.Register(collector)
}

// forEachCombination calls a function with each combination of a value of every label.
func forEachCombination(labels [][]string, prefix []string, call func(values ...string)) {
	if len(labels) == 0 {
		call(prefix...)
		return
	}
	for _, value := range labels[0] {
		forEachCombination(labels[1:], append(slices.Clip(prefix), value), call)
	}
}
