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

// rewrite is an object to be written. Before is nil if it is created, after is nil if it is deleted.
type rewrite struct {
	before, after *servicedemand.ServiceDemand
	off           float64
}

// object is the object after the write or, if it is deleted, before.
func (r rewrite) object() *servicedemand.ServiceDemand {
	if r.after != nil {
		return r.after
	}
	return r.before
}

// change is its cost, and how important it is.
func (r rewrite) change() change {
	object := r.object()
	text, _ := json.Marshal(object) //nolint:errchkjson // of numbers and strings
	size := len(text)
	if r.before == nil {
		size += byServer
	}
	return change{object.Namespace, object.Name, size, r.off}
}

// state is what a round has seen, by namespace and name.
type state struct {
	services map[string]*corev1.Service
	wanted   func(*corev1.Service) bool // its demand should be published
	objects  map[string]*servicedemand.ServiceDemand
}

// ours returns the object of a Service that we wrote for it, and not for an earlier one of that name; nil if there is none.
// A webhook of another version, whose fields have other names, wrote an object that does not say when it was observed.
func (s *state) ours(name string) *servicedemand.ServiceDemand {
	object, service := s.objects[name], s.services[name]
	if object == nil || service == nil || !isOurs(object) || !isOf(object, service) || object.Since.IsZero() {
		return nil
	}
	return object
}

// rewrites returns what is to be written after a round. What cannot be described is withdrawn: what is said of it is no longer
// so. The first such Service is an error, and nobody else's trouble: if there are too many zones, it is the same with all.
func (s *state) rewrites(now time.Time, round Round) (all []rewrite, failed error) {
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if object := s.objects[name]; isOurs(object) && (s.ours(name) == nil || !s.wanted(s.services[name])) {
			all = append(all, rewrite{before: object, off: math.Inf(1)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(round.Decided)) {
		report, before := round.Decided[name], s.ours(name)
		switch {
		case s.objects[name] != nil && before == nil: // somebody else's, or one that goes
		case report.Reason == Ended && before != nil:
			all = append(all, rewrite{before: before, off: 1})
		case report.Reason == First || report.Reason == Differs:
			after, err := describe(s.services[name], before, report.Decision, round, now)
			failed = cmp.Or(failed, err)
			if before != nil || after != nil {
				all = append(all, rewrite{before, after, report.Off})
			}
		}
	}
	return all, failed
}

// known returns what is known of a Service, for the follower.
func (s *state) known() Services {
	return func(name string) (Service, bool) {
		service := s.services[name]
		if service == nil {
			return Service{}, false
		}
		if !s.wanted(service) {
			return Service{}, true
		}
		known := Service{IsPublished: true}
		if object := s.ours(name); object != nil {
			known.Said = saidBy(object)
		}
		return known, true
	}
}

// strangers returns what to log about objects that somebody else wrote: they stay, and are not overwritten.
func (s *state) strangers() map[string]string {
	said := map[string]string{}
	for name, object := range s.objects {
		if !isOurs(object) {
			said[name] = fmt.Sprintf("somebody else wrote it, for it lacks the label %s=%s: it stays as it is", managedBy, publisher)
		}
	}
	return said
}
