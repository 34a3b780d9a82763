package metrics

import (
	"net/http"
	"sync/atomic"

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

	// Of syncs.
	syncDuration, fullSyncDuration, partialSyncDuration *prometheus.HistogramVec
	programmingDuration                                 *prometheus.HistogramVec
	syncServices                                        prometheus.Histogram
	lastSync, lastQueued                                *prometheus.GaugeVec
	syncFailures, cleanupFailures                       *prometheus.CounterVec
	elementsWritten                                     *prometheus.CounterVec

	// Of what comes from the cluster.
	endpointChanges, serviceChanges               prometheus.Counter
	endpointChangesPending, serviceChangesPending prometheus.Gauge
	watchInterrupted                              *prometheus.GaugeVec
	objectsRefused                                *levels[string]
	apiRequests                                   *prometheus.CounterVec
	apiRequestDuration                            *prometheus.HistogramVec

	// Of what is in force.
	services, contested  prometheus.Gauge
	servicePorts         *prometheus.GaugeVec
	servicePortsByReason *levels[PortReason]
	noLocalEndpoints     *prometheus.GaugeVec

	// Of what happens beside syncs.
	foreignChanges, foreignChangesRepaired *prometheus.CounterVec
	repairs                                *repairs
	flowsEnded                             *prometheus.CounterVec
	flowsDuration                          *prometheus.HistogramVec
	eventsDropped                          atomic.Pointer[func() int] // who counts them; nil if nobody does
	checksFailed                           prometheus.Gauge
	healthAnswers                          map[string]*prometheus.CounterVec // by path
	buildInfo                              *prometheus.GaugeVec
}

// NewRecorder returns a recorder that has counted nothing yet. The Go runtime's and the process's own metrics come with it.
func NewRecorder() *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), repairs: newRepairs()}
	r.makeSyncs()
	r.makeCluster()
	r.makeInForce()
	r.makeBeside()
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.startSeries()
	return r
}

func (r *Recorder) makeSyncs() {
	r.syncDuration = r.histograms(SyncDurationName, syncDurationHelp, syncDurationBuckets, FamilyLabel)
	r.fullSyncDuration = r.histograms(FullSyncDurationName, fullSyncDurationHelp, syncDurationBuckets, FamilyLabel)
	r.partialSyncDuration = r.histograms(PartialSyncDurationName, partialSyncDurationHelp, syncDurationBuckets, FamilyLabel)
	r.programmingDuration = r.histograms(ProgrammingDurationName, programmingDurationHelp, programmingDurationBuckets(), FamilyLabel)
	r.syncServices = registered(r, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: SyncServicesName, Help: syncServicesHelp, Buckets: syncServicesBuckets,
	}))
	r.lastSync = r.gauges(LastSyncName, lastSyncHelp, FamilyLabel)
	r.lastQueued = r.gauges(LastQueuedName, lastQueuedHelp, FamilyLabel)
	r.syncFailures = r.counters(SyncFailuresName, syncFailuresHelp, FamilyLabel)
	r.cleanupFailures = r.counters(CleanupFailuresName, cleanupFailuresHelp, FamilyLabel)
	r.elementsWritten = r.counters(ElementsWrittenName, elementsWrittenHelp, FamilyLabel, OperationLabel)
}

func (r *Recorder) makeCluster() {
	r.endpointChanges = r.counter(EndpointChangesName, endpointChangesHelp)
	r.serviceChanges = r.counter(ServiceChangesName, serviceChangesHelp)
	r.endpointChangesPending = r.gauge(EndpointChangesPendingName, endpointChangesPendingHelp)
	r.serviceChangesPending = r.gauge(ServiceChangesPendingName, serviceChangesPendingHelp)
	r.watchInterrupted = r.gauges(WatchInterruptedName, watchInterruptedHelp, ResourceLabel)
	r.objectsRefused = registered(r, newLevels(ObjectsRefusedName, objectsRefusedHelp,
		func(kind string) []string { return []string{kind} }, KindLabel))
	r.apiRequests = r.counters(APIRequestsName, apiRequestsHelp, CodeLabel, MethodLabel, HostLabel)
	r.apiRequestDuration = r.histograms(APIRequestDurationName, apiRequestDurationHelp, apiRequestBuckets, VerbLabel, HostLabel)
}

func (r *Recorder) makeInForce() {
	r.services = r.gauge(ServicesName, servicesHelp)
	r.contested = r.gauge(FrontendsContestedName, frontendsContestedHelp)
	r.servicePorts = r.gauges(ServicePortsName, servicePortsHelp, FamilyLabel)
	r.servicePortsByReason = registered(r, newLevels(ServicePortsByReasonName, servicePortsByReasonHelp,
		PortReason.values, FamilyLabel, PolicyLabel, ReasonLabel))
	r.noLocalEndpoints = r.gauges(NoLocalEndpointsName, noLocalEndpointsHelp, FamilyLabel, PolicyLabel)
}

func (r *Recorder) makeBeside() {
	r.foreignChanges = r.counters(ForeignChangesName, foreignChangesHelp, FamilyLabel)
	r.foreignChangesRepaired = r.counters(ForeignChangesRepairedName, foreignChangesRepairedHelp, FamilyLabel)
	r.flowsEnded = r.counters(FlowsEndedName, flowsEndedHelp, FamilyLabel)
	r.flowsDuration = r.histograms(FlowsDurationName, flowsDurationHelp, syncDurationBuckets, FamilyLabel)
	registered(r, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: EventsDroppedName, Help: eventsDroppedHelp}, r.countEventsDropped))
	r.checksFailed = r.gauge(HealthChecksFailedName, healthChecksFailedHelp)
	r.healthAnswers = map[string]*prometheus.CounterVec{
		"/healthz": r.counters(HealthzName, healthzHelp, CodeLabel),
		"/livez":   r.counters(LivezName, livezHelp, CodeLabel),
	}
	r.buildInfo = r.gauges(BuildInfoName, buildInfoHelp, VersionLabel, GoVersionLabel)
}

// startSeries makes every count exist whose labels are known beforehand, at zero. A moment that has not come has no series: zero
// would be 1970.
func (r *Recorder) startSeries() {
	for _, family := range Families {
		for _, durations := range []*prometheus.HistogramVec{
			r.syncDuration, r.fullSyncDuration, r.partialSyncDuration, r.programmingDuration, r.flowsDuration,
		} {
			durations.WithLabelValues(family)
		}
		for _, count := range []*prometheus.CounterVec{
			r.syncFailures, r.cleanupFailures, r.foreignChanges, r.foreignChangesRepaired, r.flowsEnded,
		} {
			count.WithLabelValues(family)
		}
		r.elementsWritten.WithLabelValues(family, OperationAdd)
		r.elementsWritten.WithLabelValues(family, OperationDelete)
		r.servicePorts.WithLabelValues(family)
		r.noLocalEndpoints.WithLabelValues(family, PolicyInternal)
		r.noLocalEndpoints.WithLabelValues(family, PolicyExternal)
	}
	for _, answers := range r.healthAnswers {
		answers.WithLabelValues("200")
		answers.WithLabelValues("503")
	}
	refused := map[string]int{}
	for _, kind := range []string{"File", "Service", "EndpointSlice", "Node", "ServiceCIDR"} {
		refused[kind] = 0
	}
	r.objectsRefused.set(refused)
}

// Handler serves what was counted, in the format that the asker prefers.
func (r *Recorder) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	return mux
}

// registered registers a collector and returns it.
func registered[C prometheus.Collector](r *Recorder, collector C) C {
	r.registry.MustRegister(collector)
	return collector
}

func (r *Recorder) gauge(name, help string) prometheus.Gauge {
	return registered(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (r *Recorder) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return registered(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (r *Recorder) counter(name, help string) prometheus.Counter {
	return registered(r, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (r *Recorder) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (r *Recorder) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registered(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}
