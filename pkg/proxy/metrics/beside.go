package metrics

import (
	"strconv"
	"time"
)

// Build records what runs.
func (r *Recorder) Build(version, goVersion string) {
	r.buildInfo.WithLabelValues(version, goVersion).Set(1)
}

// ObjectsRefused records how many objects of each kind are left out now. A kind that is no longer named has none.
func (r *Recorder) ObjectsRefused(byKind map[string]int) { r.objectsRefused.set(byKind) }

// WatchInterrupted records since when the API server is not heard about a resource. The series goes with WatchResumed.
func (r *Recorder) WatchInterrupted(resource string, since time.Time) {
	r.watchInterrupted.WithLabelValues(resource).Set(float64(since.UnixMicro()) / 1e6)
}

// WatchResumed records that the API server is heard about a resource.
func (r *Recorder) WatchResumed(resource string) { r.watchInterrupted.DeleteLabelValues(resource) }

// FlowsEnded counts n UDP flows that were ended.
func (r *Recorder) FlowsEnded(family string, n int) {
	r.flowsEnded.WithLabelValues(family).Add(float64(n))
}

// FlowsLookedAt records how long a look at the UDP flows of a family took that succeeded.
func (r *Recorder) FlowsLookedAt(family string, took time.Duration) {
	r.flowsDuration.WithLabelValues(family).Observe(took.Seconds())
}

// EventsDropped has a function asked with every scrape how many Kubernetes Events were dropped so far. Until then none were.
func (r *Recorder) EventsDropped(count func() int) { r.eventsDropped.Store(&count) }

func (r *Recorder) countEventsDropped() float64 {
	count := r.eventsDropped.Load()
	if count == nil {
		return 0
	}
	return float64((*count)())
}

// HealthChecksFailed records whether some healthCheckNodePort cannot be served now.
func (r *Recorder) HealthChecksFailed(failed bool) {
	value := 0.0
	if failed {
		value = 1
	}
	r.checksFailed.Set(value)
}

// HealthAnswered counts an answer of one of health's paths. Only those that kube-proxy counts are.
func (r *Recorder) HealthAnswered(path string, code int) {
	if answers, counted := r.healthAnswers[path]; counted {
		answers.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}
