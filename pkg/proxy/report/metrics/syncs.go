package metrics

import "time"

// ChangesQueued counts changes that were received and that the next sync applies. Each object counts once, even with
// two families.
func (r *Recorder) ChangesQueued(services, endpointSlices int) {
	r.Add(serviceChanges, services)
	serviceChangesPending.collector(r).WithLabelValues().Add(float64(services))
	r.Add(endpointChanges, endpointSlices)
	endpointChangesPending.collector(r).WithLabelValues().Add(float64(endpointSlices))
}

// SyncQueued records that a change needs a sync, which starts now. It counts for both families: one transaction changes
// both.
func (r *Recorder) SyncQueued(at time.Time) {
	for _, family := range families {
		r.setTime(lastQueued, at, family)
	}
	r.repairs.onRepairStart()
}

// ObserveSync records one attempt to update the kernel: whether it was a full sync, how long it took, and in err
// whether it failed.
func (r *Recorder) ObserveSync(isFull bool, took time.Duration, err error) {
	kind := partialSyncDuration
	if isFull {
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

// SyncDone records when the kernel was brought up to date, in both families. A full sync has also repaired external
// modifications.
func (r *Recorder) SyncDone(at time.Time, isFull bool) {
	for _, family := range families {
		r.setTime(lastSync, at, family)
	}
	r.Set(serviceChangesPending, 0)
	r.Set(endpointChangesPending, 0)
	if !isFull {
		return
	}
	for family, n := range r.repairs.onRepaired() {
		r.Add(externalChanges, n, family, stageRepaired)
	}
}

// CleanupFailed counts a cleanup that the kernel rejected. A cleanup covers both families.
func (r *Recorder) CleanupFailed() {
	for _, family := range families {
		r.Add(cleanupFailures, 1, family)
	}
}

// EndpointChangeProgrammed records how long a change of an EndpointSlice took from its cause to the kernel. The two
// times are from the clocks of two machines: a negative difference counts as zero.
func (r *Recorder) EndpointChangeProgrammed(family string, took time.Duration) {
	r.Observe(programmingDuration, max(0, took), family)
}

// ExternalChange counts an external modification of our table. It counts as repaired after the next full sync that
// starts later.
func (r *Recorder) ExternalChange(family string) {
	r.Add(externalChanges, 1, family, stageDetected)
	r.repairs.onDrift(family)
}

// setTime sets a gauge to a time, with fractions of a second as in kube-proxy's gauges.
func (r *Recorder) setTime(gauge Gauge, at time.Time, labels ...string) {
	gauge.collector(r).WithLabelValues(labels...).Set(float64(at.UnixMicro()) / 1e6)
}
