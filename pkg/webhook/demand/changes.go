package demand

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/writequeue"
)

// state is the input of a round, by namespace/name.
type state struct {
	services      map[string]*corev1.Service
	shouldPublish func(*corev1.Service) bool // reports whether its demand should be published
	objects       map[string]*v1alpha1.ServiceDemand
}

// managed returns the object that the webhook wrote for this Service, and not for an earlier one of the same name; nil
// if there is none. An object without an observation time comes from another version of the webhook, whose fields have
// other names.
func (s *state) managed(name string) *v1alpha1.ServiceDemand {
	object, service := s.objects[name], s.services[name]
	if object == nil || service == nil || !isManaged(object) || !belongsTo(object, service) || object.ObservedAt.IsZero() {
		return nil
	}
	return object
}

// changes returns the writes after a round. If a report cannot be represented (too many zones), its object is deleted,
// because its content is outdated. The first such failure is returned as an error and does not affect other Services:
// too many zones usually affect all of them.
func (s *state) changes(now time.Time, round Round) (all []writequeue.Change, firstErr error) {
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if object := s.objects[name]; isManaged(object) && (s.managed(name) == nil || !s.shouldPublish(s.services[name])) {
			all = append(all, writequeue.NewChange(object, nil, math.Inf(1)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(round.Decided)) {
		report, existing := round.Decided[name], s.managed(name)
		switch {
		case s.objects[name] != nil && existing == nil: // an unmanaged object, or one deleted above
		case report.Reason == BelowThreshold && existing != nil:
			all = append(all, writequeue.NewChange(existing, nil, 1))
		case report.Reason == First, report.Reason == Changed, report.Reason == Unchanged && hasOtherFlags(existing, round, now):
			after, err := newObject(s.services[name], existing, report.Decision, round, now)
			firstErr = cmp.Or(firstErr, err)
			if existing != nil || after != nil {
				all = append(all, writequeue.NewChange(existing, after, report.Skew))
			}
		}
	}
	return all, firstErr
}

// flagInterval is the shortest time between two writes of an object whose demand is unchanged.
const flagInterval = 10 * time.Minute

// hasOtherFlags reports whether an object should be written because zones are assumed that were not, or the reverse.
func hasOtherFlags(existing *v1alpha1.ServiceDemand, round Round, now time.Time) bool {
	return existing != nil && now.Sub(existing.ObservedAt.Time) >= flagInterval &&
		!slices.Equal(assumedZonesIn(existing), round.AssumedZones)
}

// lookupService returns a lookup of Services for the Aggregator.
func (s *state) lookupService() Services {
	return func(name string) (Service, bool) {
		service := s.services[name]
		if service == nil {
			return Service{}, false
		}
		if !s.shouldPublish(service) {
			return Service{}, true
		}
		result := Service{ShouldPublish: true}
		if object := s.managed(name); object != nil {
			result.Published, result.PublishedOpen = publishedIn(object)
			result.PublishedNodes = object.EffectiveNodes
		}
		return result, true
	}
}
