package metrics

import "time"

// ChangesQueued counts changes that were taken up and that the next sync brings into force. Each object counts once,
// whatever its families are.
func (r *Recorder) ChangesQueued(services, endpointSlices int) {
	r.Add(serviceChanges, services)
	serviceChangesPending.collector(r).WithLabelValues().Add(float64(services))
	r.Add(endpointChanges, endpointSlices)
	endpointChangesPending.collector(r).WithLabelValues().Add(float64(endpointSlices))
}

// SyncQueued records that a change asks for a sync, which begins now. It counts for both families: one transaction
// changes both.
func (r *Recorder) SyncQueued(at time.Time) {
	for _, family := range families {
		r.setTime(lastQueued, at, family)
	}
	r.repairs.onRepairStart()
}

// ObserveSync records one attempt to bring the kernel up to date: whether it was to write everything, how long it took
// and, with err, that the kernel did not take it.
func (r *Recorder) ObserveSync(complete bool, took time.Duration, err error) {
	kind := partialSyncDuration
	if complete {
		kind = fullSyncDuration
	}
	for _, family := range families {
		r.Observe(syncDuration, took, family)
		r.Observe(kind, took, family)
		if err != nil {
			r.Add(syncFailures, 1, family)
		}
	}
}

// SyncDone records when the kernel was up to date, in both families. A complete sync has also repaired what others had
// changed.
func (r *Recorder) SyncDone(at time.Time, complete bool) {
	for _, family := range families {
		r.setTime(lastSync, at, family)
	}
	r.Set(serviceChangesPending, 0)
	r.Set(endpointChangesPending, 0)
	if !complete {
		return
	}
	for family, n := range r.repairs.onRepaired() {
		r.Add(foreignChanges, n, family, stageRepaired)
	}
}

// CleanupFailed counts a sweep that the kernel refused. A sweep covers both families.
func (r *Recorder) CleanupFailed() {
	for _, family := range families {
		r.Add(cleanupFailures, 1, family)
	}
}

// Programmed records how long a change of an EndpointSlice took from its cause to the kernel. Two machines' clocks
// measure that: one that is late would make it negative, which counts as no time.
func (r *Recorder) Programmed(family string, took time.Duration) {
	r.Observe(programmingDuration, max(0, took), family)
}

// ForeignChange counts a change to our table by another process. It counts as repaired after the next complete sync
// that begins later.
func (r *Recorder) ForeignChange(family string) {
	r.Add(foreignChanges, 1, family, stageDetected)
	r.repairs.onDrift(family)
}

// setTime sets a gauge to a moment, with the fractions of a second that kube-proxy's gauges have too.
func (r *Recorder) setTime(gauge Gauge, at time.Time, labels ...string) {
	gauge.collector(r).WithLabelValues(labels...).Set(float64(at.UnixMicro()) / 1e6)
}
