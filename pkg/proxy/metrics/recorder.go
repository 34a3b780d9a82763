package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Recorder counts what one proxy does. Its methods may be called at the same time from several goroutines. What moves one metric is
// observed by its row, with Add, Set or Observe; what moves several, or needs more than a number, has a method of its own.
//
// It has a registry of its own rather than the library's global one: two proxies in one process, as tests and benchmarks
// have them, do not mix, and nothing appears in /metrics that is not registered here.
type Recorder struct {
	registry   *prometheus.Registry
	collectors map[string]prometheus.Collector // by the metric's name; never changed
	repairs    *repairs
}

// NewRecorder returns a recorder that has counted nothing yet. The Go runtime's and the process's own metrics come with it.
func NewRecorder() *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), collectors: map[string]prometheus.Collector{}, repairs: newRepairs()}
	for _, row := range rows {
		row.addTo(r)
	}
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Add adds to a counter. Here and below there is a value for each label, in the order of the row.
func (r *Recorder) Add(c Counter, n int, labels ...string) {
	c.collector(r).WithLabelValues(labels...).Add(float64(n))
}

// Set sets a gauge.
func (r *Recorder) Set(g Gauge, value int, labels ...string) {
	g.collector(r).WithLabelValues(labels...).Set(float64(value))
}

// Observe adds a duration to a histogram of seconds.
func (r *Recorder) Observe(h Histogram, took time.Duration, labels ...string) {
	h.collector(r).WithLabelValues(labels...).Observe(took.Seconds())
}

// Handler serves what was counted, in the format that the asker prefers.
func (r *Recorder) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	return mux
}
