package demand

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// byServer is how many bytes the API server adds to a new object, such as managedFields.
const byServer = 700

// objectChange is an object to be written. Before is nil if it is created, after is nil if it is deleted.
type objectChange struct {
	before, after *servicedemand.ServiceDemand
	skew          float64
}

// object is the object after the write or, if it is deleted, before.
func (r objectChange) object() *servicedemand.ServiceDemand {
	if r.after != nil {
		return r.after
	}
	return r.before
}

// change is its cost, and how important it is.
func (r objectChange) change() change {
	object := r.object()
	text, _ := json.Marshal(object) //nolint:errchkjson // of numbers and strings
	size := len(text)
	if r.before == nil {
		size += byServer
	}
	return change{object.Namespace, object.Name, size, r.skew}
}

// state is what a round has seen, by namespace and name.
type state struct {
	services      map[string]*corev1.Service
	shouldPublish func(*corev1.Service) bool // its demand should be published
	objects       map[string]*servicedemand.ServiceDemand
}

// managed returns the object of a Service that we wrote for it, and not for an earlier one of that name; nil if there is none.
// A webhook of another version, whose fields have other names, wrote an object that does not say when it was observed.
func (s *state) managed(name string) *servicedemand.ServiceDemand {
	object, service := s.objects[name], s.services[name]
	if object == nil || service == nil || !isManaged(object) || !belongsTo(object, service) || object.ObservedAt.IsZero() {
		return nil
	}
	return object
}

// changes returns what is to be written after a round. What cannot be described is withdrawn: what is said of it is no longer
// so. The first such Service is an error, and nobody else's trouble: if there are too many zones, it is the same with all.
func (s *state) changes(now time.Time, round Round) (all []objectChange, failed error) {
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if object := s.objects[name]; isManaged(object) && (s.managed(name) == nil || !s.shouldPublish(s.services[name])) {
			all = append(all, objectChange{before: object, skew: math.Inf(1)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(round.Decided)) {
		report, before := round.Decided[name], s.managed(name)
		switch {
		case s.objects[name] != nil && before == nil: // somebody else's, or one that goes
		case report.Reason == BelowThreshold && before != nil:
			all = append(all, objectChange{before: before, skew: 1})
		case report.Reason == First || report.Reason == Changed:
			after, err := newObject(s.services[name], before, report.Decision, round, now)
			failed = cmp.Or(failed, err)
			if before != nil || after != nil {
				all = append(all, objectChange{before, after, report.Skew})
			}
		}
	}
	return all, failed
}

// lookupService returns what is known of a Service, for the follower.
func (s *state) lookupService() Services {
	return func(name string) (Service, bool) {
		service := s.services[name]
		if service == nil {
			return Service{}, false
		}
		if !s.shouldPublish(service) {
			return Service{}, true
		}
		known := Service{ShouldPublish: true}
		if object := s.managed(name); object != nil {
			known.Published = publishedIn(object)
		}
		return known, true
	}
}

// unmanaged returns what to log about objects that somebody else wrote: they stay, and are not overwritten.
func (s *state) unmanaged() map[string]string {
	said := map[string]string{}
	for name, object := range s.objects {
		if !isManaged(object) {
			said[name] = fmt.Sprintf("somebody else wrote it, for it lacks the label %s=%s: it stays as it is", managedBy, publisher)
		}
	}
	return said
}
