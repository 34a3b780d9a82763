package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ChangesQueued counts changes that were taken up and that the next sync brings into force. Each object counts once, whatever its
// families are.
func (r *Recorder) ChangesQueued(services, endpointSlices int) {
	r.serviceChanges.Add(float64(services))
	r.serviceChangesPending.Add(float64(services))
	r.endpointChanges.Add(float64(endpointSlices))
	r.endpointChangesPending.Add(float64(endpointSlices))
}

// SyncQueued records when a change asked for a sync, which begins now. It asks for both families: they are changed in the same
// transaction.
func (r *Recorder) SyncQueued(at time.Time) {
	setTime(r.lastQueued, at)
	r.repairs.begin()
}

// ObserveSync records one attempt to bring the kernel up to date: whether it was to write everything, how long it took and, with err,
// that the kernel did not take it.
func (r *Recorder) ObserveSync(complete bool, took time.Duration, err error) {
	kind := r.partialSyncDuration
	if complete {
		kind = r.fullSyncDuration
	}
	for _, family := range Families {
		r.syncDuration.WithLabelValues(family).Observe(took.Seconds())
		kind.WithLabelValues(family).Observe(took.Seconds())
		if err != nil {
			r.syncFailures.WithLabelValues(family).Inc()
		}
	}
}

// SyncDone records when the kernel was up to date, in both families, and how many Services had been decided for it. A complete sync
// has also repaired what others had changed.
func (r *Recorder) SyncDone(at time.Time, complete bool, services int) {
	setTime(r.lastSync, at)
	r.syncServices.Observe(float64(services))
	r.serviceChangesPending.Set(0)
	r.endpointChangesPending.Set(0)
	if !complete {
		return
	}
	for family, n := range r.repairs.done() {
		r.foreignChangesRepaired.WithLabelValues(family).Add(float64(n))
	}
}

// SweepFailed counts a sweep that the kernel did not take. It sweeps both families.
func (r *Recorder) SweepFailed() {
	for _, family := range Families {
		r.cleanupFailures.WithLabelValues(family).Inc()
	}
}

// Programmed records how long a change of an EndpointSlice took from its cause to the kernel. Two machines' clocks measure that: one
// that is late would make it negative, which counts as no time.
func (r *Recorder) Programmed(family string, took time.Duration) {
	r.programmingDuration.WithLabelValues(family).Observe(max(0, took.Seconds()))
}

// ElementsWritten counts n elements that the kernel took. The operation is OperationAdd or OperationDelete.
func (r *Recorder) ElementsWritten(family, operation string, n int) {
	r.elementsWritten.WithLabelValues(family, operation).Add(float64(n))
}

// ForeignChange counts a change to our table that was not ours. It counts as repaired after the next complete sync that begins later.
func (r *Recorder) ForeignChange(family string) {
	r.foreignChanges.WithLabelValues(family).Inc()
	r.repairs.notice(family)
}

// setTime sets a gauge of both families to a moment, with the fractions of a second that kube-proxy's gauges have too.
func setTime(gauge *prometheus.GaugeVec, at time.Time) {
	for _, family := range Families {
		gauge.WithLabelValues(family).Set(float64(at.UnixMicro()) / 1e6)
	}
}
