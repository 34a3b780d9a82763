package metrics

import (
	"strconv"
	"time"
)

// ObjectsRefused records how many objects of each kind are left out now. A kind that is no longer named has none.
func (r *Recorder) ObjectsRefused(byKind map[string]int) {
	all := make(map[series]int, len(byKind))
	for kind, n := range byKind {
		all[seriesOf(kind)] = n
	}
	objectsRefused.collector(r).set(all)
}

// PortReason is why Service ports have the endpoints that they have: the values of three labels.
type PortReason struct{ Family, TrafficPolicy, Reason string }

// ServicePortsByReason records how many Service ports have which reason now. One that is no longer named has none.
func (r *Recorder) ServicePortsByReason(byReason map[PortReason]int) {
	all := make(map[series]int, len(byReason))
	for reason, n := range byReason {
		all[seriesOf(reason.Family, reason.TrafficPolicy, reason.Reason)] = n
	}
	servicePortsByReason.collector(r).set(all)
}

// WatchInterrupted records since when the API server is not heard about a resource. The series goes with WatchResumed.
func (r *Recorder) WatchInterrupted(resource string, since time.Time) {
	r.setTime(watchInterrupted, since, resource)
}

// WatchResumed records that the API server is heard about a resource.
func (r *Recorder) WatchResumed(resource string) {
	watchInterrupted.collector(r).DeleteLabelValues(resource)
}

// EventsDropped has a function asked with every scrape how many Kubernetes Events were dropped so far. Until then none were.
func (r *Recorder) EventsDropped(count func() int) { eventsDropped.collector(r).ask.Store(&count) }

// HealthChecksFailed records whether some healthCheckNodePort cannot be served now.
func (r *Recorder) HealthChecksFailed(failed bool) {
	value := 0
	if failed {
		value = 1
	}
	r.Set(healthChecksFailed, value)
}

// healthAnswers are the counters of health's paths, those that kube-proxy counts.
var healthAnswers = map[string]Counter{"/healthz": healthz, "/livez": livez}

// HealthAnswered counts an answer of one of health's paths, if kube-proxy counts it.
func (r *Recorder) HealthAnswered(path string, code int) {
	if answers, isCounted := healthAnswers[path]; isCounted {
		r.Add(answers, 1, strconv.Itoa(code))
	}
}
