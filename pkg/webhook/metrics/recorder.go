package metrics

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
)

// Recorder counts what one webhook does. Its methods may be called at the same time from several goroutines.
type Recorder struct {
	counters   map[*row]*prometheus.CounterVec
	gauges     map[*row]*prometheus.GaugeVec
	histograms map[*row]*prometheus.HistogramVec

	measuring sync.Mutex
	measured  map[[2]string]Demand // the Services that have series
}

// Demand is the demand on a Service.
type Demand struct{ OffBy, ConnectionsPerMinute float64 }

// New returns a recorder that has counted nothing yet, and registers its metrics. It fails if one of that name is
// registered already. Without a file the configuration is that of the program, and valid.
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

func (r *Recorder) set(row *row, to float64) { r.gauges[row].WithLabelValues().Set(to) }

// setTime sets a gauge to seconds since 1970.
func (r *Recorder) setTime(row *row, at time.Time, values ...string) {
	const second = float64(time.Second)
	r.gauges[row].WithLabelValues(values...).Set(float64(at.UnixNano()) / second)
}

// Reviewed counts a request that was answered.
func (r *Recorder) Reviewed(path, outcome string, took time.Duration) {
	r.histograms[reviewDuration].WithLabelValues(path, outcome).Observe(took.Seconds())
}

// Decided counts a violation that was reported to a user. The action is one of Actions.
func (r *Recorder) Decided(rule, action string) { r.count(decisions, rule, action) }

// Defaulted counts a decision about a Service's default. The setting is empty if nothing was added.
func (r *Recorder) Defaulted(source, setting string) {
	if setting == "" {
		setting = Nothing
	}
	r.count(defaulted, source, setting)
}

// Failed counts what failed for an internal reason.
func (r *Recorder) Failed(reason string) { r.count(internalErrors, reason) }

// Rejected counts a request that was not a review, or came at a bad time.
func (r *Recorder) Rejected(reason string) { r.count(rejectedRequests, reason) }

// InFlight adds to the reviews that are being worked on: 1 when one begins, -1 when it ends.
func (r *Recorder) InFlight(delta int) { r.gauges[inFlight].WithLabelValues().Add(float64(delta)) }

// CertificateExpires records that the certificate that is served from now on is valid until then.
func (r *Recorder) CertificateExpires(at time.Time) {
	r.setTime(certificateExpiry, at, servedCertificate)
}

// AuthorityExpires records that the authority that signed it is valid until then.
func (r *Recorder) AuthorityExpires(at time.Time) {
	r.setTime(certificateExpiry, at, authorityCertificate)
}

// CertificateFailed counts an operation that failed; the log has the error.
func (r *Recorder) CertificateFailed(operation certs.Operation, _ error) {
	r.Failed(certificateFailure(operation))
}

// ConfigurationUpdated records that the configuration file is in force from now on, or the default if there is no file.
func (r *Recorder) ConfigurationUpdated(now time.Time) {
	r.set(configurationValid, 1)
	r.setTime(configurationSuccess, now)
}

// ConfigurationFailed records that the configuration file was changed to something that cannot be used.
func (r *Recorder) ConfigurationFailed() { r.set(configurationValid, 0) }

// Published records that all TopologySlices were up to date at some time: how many there are, for how many nodes, how
// many keys found no place, and how long the first of the changes waited; 0 if there was none.
func (r *Recorder) Published(at time.Time, slices, nodes, skipped int, lag time.Duration) {
	r.set(topologySlices, float64(slices))
	r.set(topologyNodes, float64(nodes))
	r.set(topologyKeysSkipped, float64(skipped))
	r.setTime(topologyPublished, at)
	if lag > 0 {
		r.histograms[topologyLag].WithLabelValues().Observe(lag.Seconds())
	}
}

// LeadEnded records that another replica publishes.
func (r *Recorder) LeadEnded() {
	r.set(topologySlices, 0)
	r.set(topologyNodes, 0)
	r.set(topologyKeysSkipped, 0)
}

// PublishFailed counts a publication that failed.
func (r *Recorder) PublishFailed() { r.Failed(TopologyFailure) }

// SliceWritten counts a write of a TopologySlice. The operation is one of Operations.
func (r *Recorder) SliceWritten(operation string) {
	r.count(objectsWritten, topologySlicesWritten, operation)
}

// Measured records the demand on Services, by namespace and name, how many of the nodes reported, and for how many
// Services demand changed suddenly. It forgets all other Services.
func (r *Recorder) Measured(heard, nodes, changed int, services map[[2]string]Demand) {
	r.measuring.Lock()
	defer r.measuring.Unlock()
	r.counters[demandChanges].WithLabelValues().Add(float64(changed))
	r.setServices(services)
	if nodes > 0 {
		r.set(demandReporting, float64(heard)/float64(nodes))
	}
}

// MeasuringEnded records that another replica asks.
func (r *Recorder) MeasuringEnded() {
	r.measuring.Lock()
	defer r.measuring.Unlock()
	r.setServices(nil)
	r.gauges[demandReporting].DeleteLabelValues()
	r.DemandQueued(0, 0)
}

// DemandQueued records how many ServiceDemands wait to be written, and how long the first of them has waited.
func (r *Recorder) DemandQueued(count int, longest time.Duration) {
	r.set(demandWaiting, float64(count))
	r.set(demandWaitingSeconds, longest.Seconds())
}

// DemandPublished counts a write of a ServiceDemand. The operation is one of Operations.
func (r *Recorder) DemandPublished(operation string) {
	r.count(objectsWritten, serviceDemandsWritten, operation)
}

func (r *Recorder) setServices(services map[[2]string]Demand) {
	for name := range r.measured {
		if _, has := services[name]; !has {
			r.gauges[demandOffBy].DeleteLabelValues(name[:]...)
			r.gauges[demandConnections].DeleteLabelValues(name[:]...)
		}
	}
	for name, demand := range services {
		r.gauges[demandOffBy].WithLabelValues(name[:]...).Set(demand.OffBy)
		r.gauges[demandConnections].WithLabelValues(name[:]...).Set(demand.ConnectionsPerMinute / time.Minute.Seconds())
	}
	r.measured = services
}
