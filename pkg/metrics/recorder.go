package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Recorder counts what one proxy does. Its methods may be called at the same time from several goroutines.
//
// It has a registry of its own rather than the library's global one: two proxies in one process, as tests and benchmarks
// have them, do not mix, and nothing appears in /metrics that is not registered here.
type Recorder struct {
	registry *prometheus.Registry

	syncDuration    *prometheus.HistogramVec
	lastSync        *prometheus.GaugeVec
	lastQueued      *prometheus.GaugeVec
	syncFailures    *prometheus.CounterVec
	elementsWritten *prometheus.CounterVec
	foreignChanges  *prometheus.CounterVec
	servicePorts    *prometheus.GaugeVec
	objectsRefused  *refusals
	contested       prometheus.Gauge
	flowsEnded      *prometheus.CounterVec
	checksFailed    prometheus.Gauge
}

// NewRecorder returns a recorder that has counted nothing yet. The Go runtime's and the process's own metrics come with it.
func NewRecorder() *Recorder {
	r := &Recorder{
		registry: prometheus.NewRegistry(),
		syncDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: SyncDurationName, Help: syncDurationHelp, Buckets: syncDurationBuckets,
		}, []string{FamilyLabel}),
		lastSync:        gauge(LastSyncName, lastSyncHelp, FamilyLabel),
		lastQueued:      gauge(LastQueuedName, lastQueuedHelp, FamilyLabel),
		syncFailures:    counter(SyncFailuresName, syncFailuresHelp, FamilyLabel),
		elementsWritten: counter(ElementsWrittenName, elementsWrittenHelp, FamilyLabel, OperationLabel),
		foreignChanges:  counter(ForeignChangesName, foreignChangesHelp, FamilyLabel),
		servicePorts:    gauge(ServicePortsName, servicePortsHelp, FamilyLabel),
		objectsRefused: &refusals{
			desc:   prometheus.NewDesc(ObjectsRefusedName, objectsRefusedHelp, []string{KindLabel}, nil),
			byKind: map[string]int{},
		},
		contested:    prometheus.NewGauge(prometheus.GaugeOpts{Name: FrontendsContestedName, Help: frontendsContestedHelp}),
		flowsEnded:   counter(FlowsEndedName, flowsEndedHelp, FamilyLabel),
		checksFailed: prometheus.NewGauge(prometheus.GaugeOpts{Name: HealthChecksFailedName, Help: healthChecksFailedHelp}),
	}
	r.registry.MustRegister(
		r.syncDuration, r.lastSync, r.lastQueued, r.syncFailures, r.elementsWritten, r.foreignChanges, r.servicePorts, r.objectsRefused,
		r.contested, r.flowsEnded, r.checksFailed,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	r.startSeries()
	return r
}

// startSeries makes every count of a family and of a kind exist, at zero. A moment that has not come has no series: zero would be 1970.
func (r *Recorder) startSeries() {
	for _, family := range Families {
		r.syncDuration.WithLabelValues(family)
		r.syncFailures.WithLabelValues(family)
		r.elementsWritten.WithLabelValues(family, OperationAdd)
		r.elementsWritten.WithLabelValues(family, OperationDelete)
		r.foreignChanges.WithLabelValues(family)
		r.flowsEnded.WithLabelValues(family)
		r.servicePorts.WithLabelValues(family)
	}
	for _, kind := range []string{"File", "Service", "EndpointSlice", "Node", "ServiceCIDR"} {
		r.objectsRefused.byKind[kind] = 0
	}
}

// ObserveSync records one attempt to bring the kernel up to date in some families: how long it took and, with err, that the
// kernel did not take it.
func (r *Recorder) ObserveSync(families []string, d time.Duration, err error) {
	for _, family := range families {
		r.syncDuration.WithLabelValues(family).Observe(d.Seconds())
		if err != nil {
			r.syncFailures.WithLabelValues(family).Inc()
		}
	}
}

// SyncQueued records when a change asked for a sync. It asks for both families: they are changed in the same transaction.
func (r *Recorder) SyncQueued(at time.Time) { setTime(r.lastQueued, at) }

// SyncDone records when the kernel was up to date, in both families.
func (r *Recorder) SyncDone(at time.Time) { setTime(r.lastSync, at) }

// ElementsWritten counts n elements that the kernel took. The operation is OperationAdd or OperationDelete.
func (r *Recorder) ElementsWritten(family, operation string, n int) {
	r.elementsWritten.WithLabelValues(family, operation).Add(float64(n))
}

// ForeignChange counts a change to our table that was not ours.
func (r *Recorder) ForeignChange(family string) {
	r.foreignChanges.WithLabelValues(family).Inc()
}

// ServicePorts records how many Service ports of a family are proxied now.
func (r *Recorder) ServicePorts(family string, n int) {
	r.servicePorts.WithLabelValues(family).Set(float64(n))
}

// ObjectsRefused records how many objects of each kind are left out now. A kind that is no longer named has none.
func (r *Recorder) ObjectsRefused(byKind map[string]int) { r.objectsRefused.set(byKind) }

// FrontendsContested records how many frontends several Services want now.
func (r *Recorder) FrontendsContested(n int) { r.contested.Set(float64(n)) }

// FlowsEnded counts n UDP flows that were ended.
func (r *Recorder) FlowsEnded(family string, n int) {
	r.flowsEnded.WithLabelValues(family).Add(float64(n))
}

// HealthChecksFailed records whether some healthCheckNodePort cannot be served now.
func (r *Recorder) HealthChecksFailed(failed bool) {
	value := 0.0
	if failed {
		value = 1
	}
	r.checksFailed.Set(value)
}

// Handler serves /metrics.
func (r *Recorder) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	return mux
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// setTime sets a gauge of both families to a moment, with the fractions of a second that kube-proxy's gauges have too.
func setTime(gauge *prometheus.GaugeVec, at time.Time) {
	for _, family := range Families {
		gauge.WithLabelValues(family).Set(float64(at.UnixMicro()) / 1e6)
	}
}
