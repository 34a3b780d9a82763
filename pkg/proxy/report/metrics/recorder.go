package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Recorder holds the metrics of one proxy. Its methods are safe for concurrent use. A single metric is changed by its
// row, with Add, Set or Observe; a change of several, or one that needs more than a number, has a method of its own.
//
// It has its own registry rather than the library's global one: two proxies in one process, as in tests and benchmarks,
// do not mix, and /metrics has only the metrics that are registered here.
type Recorder struct {
	registry   *prometheus.Registry
	collectors map[string]prometheus.Collector // by the metric's name; never changed
	repairs    *repairs
}

// NewRecorder returns a recorder without observations. It includes the metrics of the Go runtime and of the process.
func NewRecorder() *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), collectors: map[string]prometheus.Collector{}, repairs: newRepairs()}
	for _, row := range rows {
		row.addTo(r)
	}
	r.DemandRenewed(time.Time{})
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Add adds to a counter. Here and below labels has a value for each label, in the order of the row.
func (r *Recorder) Add(c Counter, n int, labels ...string) {
	c.collector(r).WithLabelValues(labels...).Add(float64(n))
}

// Set sets a gauge.
func (r *Recorder) Set(g Gauge, value int, labels ...string) {
	g.collector(r).WithLabelValues(labels...).Set(float64(value))
}

// SetBool sets a gauge to 1 if isSet is true, and to 0 otherwise.
func (r *Recorder) SetBool(g Gauge, isSet bool, labels ...string) {
	value := 0
	if isSet {
		value = 1
	}
	r.Set(g, value, labels...)
}

// Observe adds a duration to a histogram of seconds.
func (r *Recorder) Observe(h Histogram, took time.Duration, labels ...string) {
	h.collector(r).WithLabelValues(labels...).Observe(took.Seconds())
}

// Handler serves the metrics, in the format that the client prefers.
func (r *Recorder) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	return mux
}

// WatchInterrupted records since when the watch of a resource has been interrupted. WatchResumed removes the series.
func (r *Recorder) WatchInterrupted(resource string, since time.Time) {
	r.setTime(watchInterrupted, since, resource)
}

// WatchResumed records that the watch of a resource recovered.
func (r *Recorder) WatchResumed(resource string) {
	watchInterrupted.collector(r).DeleteLabelValues(resource)
}

// TopologyFrom records the resource that is the source of other nodes' labels; empty means none.
func (r *Recorder) TopologyFrom(resource string) {
	for _, candidate := range topologyResources {
		r.SetBool(nodeTopology, candidate == resource, candidate)
	}
}

// DemandRenewed records when measured demand was last published; zero if it is not published, or no Service needs it.
func (r *Recorder) DemandRenewed(at time.Time) {
	if at.IsZero() {
		demandAge.collector(r).DeleteLabelValues()
		return
	}
	r.setTime(demandAge, at)
}

// Add adds a value to one series of a row; labels has a value for each label, in the order of the row.
type Add = func(value float64, labels ...string)

// CollectFrom sets the function that provides the series of a row at every scrape. Values of the same series are
// summed.
func (r *Recorder) CollectFrom(c Collected, collect func(Add)) {
	c.collector(r).collectWith(func() map[series]float64 {
		sums := map[series]float64{}
		collect(func(value float64, labels ...string) { sums[seriesOf(labels...)] += value })
		return sums
	})
}

// healthResponses are the counters of those health paths that kube-proxy counts.
var healthResponses = map[string]Counter{"/healthz": healthz, "/livez": livez}

// HealthServed counts a response of a health path, if kube-proxy counts it.
func (r *Recorder) HealthServed(path string, code int) {
	if responses, isCounted := healthResponses[path]; isCounted {
		r.Add(responses, 1, strconv.Itoa(code))
	}
}
