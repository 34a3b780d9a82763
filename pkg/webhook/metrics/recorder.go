package metrics

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// Recorder updates the metrics of one webhook. It is safe for concurrent use.
type Recorder struct {
	counters   map[*row]*prometheus.CounterVec
	gauges     map[*row]*prometheus.GaugeVec
	histograms map[*row]*prometheus.HistogramVec

	demandMutex sync.Mutex
	measured    map[[2]string]Demand // the Services with series
}

// Demand is the demand on a Service. Overload is the load of the busiest endpoint relative to the load bound; 0 if it
// is unknown.
type Demand struct{ Overload, ConnectionsPerMinute float64 }

// New returns a recorder, and registers its metrics. It fails if one of them is registered already. The configuration
// counts as valid until ConfigurationFailed, also without a file.
func New(registerer prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{
		counters: map[*row]*prometheus.CounterVec{}, gauges: map[*row]*prometheus.GaugeVec{}, histograms: map[*row]*prometheus.HistogramVec{},
	}
	var errs []error
	for _, row := range rows {
		errs = append(errs, r.register(registerer, row))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the webhook's metrics: %w", err)
	}
	r.set(configurationValid, 1)
	return r, nil
}

func (r *Recorder) count(row *row, values ...string) {
	r.counters[row].WithLabelValues(values...).Inc()
}

func (r *Recorder) set(row *row, value float64) { r.gauges[row].WithLabelValues().Set(value) }

// setTime sets a gauge to a time in seconds since 1970.
func (r *Recorder) setTime(row *row, at time.Time, values ...string) {
	const second = float64(time.Second)
	r.gauges[row].WithLabelValues(values...).Set(float64(at.UnixNano()) / second)
}

// Reviewed counts a response to a request.
func (r *Recorder) Reviewed(path, outcome string, took time.Duration) {
	r.histograms[reviewDuration].WithLabelValues(path, outcome).Observe(took.Seconds())
}

// Decided counts a violation that was reported to a user. The action is one of Actions.
func (r *Recorder) Decided(rule, action string) { r.count(violations, rule, action) }

// Defaulted counts a decision about a Service's default. The setting is empty if nothing was added.
func (r *Recorder) Defaulted(source, setting string) {
	if setting == "" {
		setting = NoSetting
	}
	r.count(defaultingDecisions, source, setting)
}

// Failed counts an internal error.
func (r *Recorder) Failed(reason string) { r.count(internalErrors, reason) }

// Rejected counts a request that was not a review, or exceeded the limits.
func (r *Recorder) Rejected(reason string) { r.count(rejectedRequests, reason) }

// InFlight adds to the reviews in progress: 1 when one starts, -1 when it ends.
func (r *Recorder) InFlight(delta int) { r.gauges[inFlight].WithLabelValues().Add(float64(delta)) }

// CertificateExpires records the end of validity of the served certificate.
func (r *Recorder) CertificateExpires(at time.Time) {
	r.setTime(certificateExpiry, at, servedCertificate)
}

// AuthorityExpires records the end of validity of the CA that signed it.
func (r *Recorder) AuthorityExpires(at time.Time) {
	r.setTime(certificateExpiry, at, authorityCertificate)
}

// CertificateFailed counts a failed operation; the log has the error.
func (r *Recorder) CertificateFailed(operation certs.Operation, _ error) {
	r.Failed(certificateReason(operation))
}

// ConfigurationUpdated records that a new configuration is applied: that of the file, or the default if there is no
// file.
func (r *Recorder) ConfigurationUpdated(now time.Time) {
	r.set(configurationValid, 1)
	r.setTime(configurationSuccess, now)
}

// ConfigurationFailed records that the configuration file was changed and is invalid.
func (r *Recorder) ConfigurationFailed() { r.set(configurationValid, 0) }

// Published records that all TopologySlices were up to date at a time, with the number of slices, nodes, and keys that
// are not published. lag is how long the first change waited; 0 if there was none.
func (r *Recorder) Published(at time.Time, slices, nodes, unpublishedKeys int, lag time.Duration) {
	r.set(topologySlices, float64(slices))
	r.set(topologyNodes, float64(nodes))
	r.set(topologyKeysUnpublished, float64(unpublishedKeys))
	r.setTime(topologyPublished, at)
	if lag > 0 {
		r.histograms[topologyLag].WithLabelValues().Observe(lag.Seconds())
	}
}

// LeadEnded records that this replica no longer publishes TopologySlices.
func (r *Recorder) LeadEnded() {
	r.set(topologySlices, 0)
	r.set(topologyNodes, 0)
	r.set(topologyKeysUnpublished, 0)
}

// PublishFailed counts a failed publication.
func (r *Recorder) PublishFailed() { r.Failed(TopologyFailure) }

// SliceWritten counts a write of a TopologySlice. The operation is one of Operations.
func (r *Recorder) SliceWritten(operation string) {
	r.count(objectsWritten, topologySlicesWritten, operation)
}

// Measured records the demand on Services by namespace and name, the number of nodes that reported it, of those that
// never did, and of change-points. It deletes the series of all other Services.
func (r *Recorder) Measured(reporting, nodes, unreported, changePoints int, services map[[2]string]Demand) {
	r.demandMutex.Lock()
	defer r.demandMutex.Unlock()
	r.counters[demandChangePoints].WithLabelValues().Add(float64(changePoints))
	r.setServices(services)
	r.set(demandUnreported, float64(unreported))
	if nodes > 0 {
		r.set(demandReporting, float64(reporting)/float64(nodes))
	}
}

// MeasuringEnded records that this replica no longer pulls demand.
func (r *Recorder) MeasuringEnded() {
	r.demandMutex.Lock()
	defer r.demandMutex.Unlock()
	r.setServices(nil)
	r.gauges[demandReporting].DeleteLabelValues()
	r.set(demandUnreported, 0)
	r.DemandQueued(0, 0)
}

// DemandQueued records the number of queued ServiceDemands, and how long the oldest has been queued.
func (r *Recorder) DemandQueued(count int, longest time.Duration) {
	r.set(demandQueueDepth, float64(count))
	r.set(demandLongestQueued, longest.Seconds())
}

// DemandPublished counts a write of a ServiceDemand. The operation is one of Operations.
func (r *Recorder) DemandPublished(operation string) {
	r.count(objectsWritten, serviceDemandsWritten, operation)
}

func (r *Recorder) setServices(services map[[2]string]Demand) {
	for name := range r.measured {
		if services[name].Overload == 0 {
			r.gauges[demandOverload].DeleteLabelValues(name[:]...)
		}
		if _, exists := services[name]; !exists {
			r.gauges[demandConnections].DeleteLabelValues(name[:]...)
		}
	}
	for name, demand := range services {
		if demand.Overload > 0 {
			r.gauges[demandOverload].WithLabelValues(name[:]...).Set(demand.Overload)
		}
		r.gauges[demandConnections].WithLabelValues(name[:]...).Set(demand.ConnectionsPerMinute / time.Minute.Seconds())
	}
	r.measured = services
}
