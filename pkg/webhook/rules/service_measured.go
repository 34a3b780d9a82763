package rules

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// isMeasured reports whether the proxy plans the Service's bound with measured demand, once there is any.
func (s *subject) isMeasured() bool { return s.isBounded() && s.topology.Measured }

// aboutDemandSource is a violation by the annotation of the demand source. It depends on value.
func aboutDemandSource(value, detail string) []Violation {
	return single(errorOf(field.ErrorTypeInvalid, annotation(policy.DemandSourceAnnotation), value, detail), value)
}

// unpublishedDemand: measured demand that nobody publishes.
func unpublishedDemand(s *subject) []Violation {
	if !s.facts.NoDemand || !s.isMeasured() {
		return nil
	}
	return aboutDemandSource(policy.Measured, string(servicedemand.NotPublished))
}

// keysSplittingZones: demand that is measured by zone, beside a key that may divide zones. The first such key is enough.
func keysSplittingZones(s *subject) []Violation {
	if !s.isMeasured() {
		return nil
	}
	i := slices.IndexFunc(s.topology.Keys, func(key policy.Key) bool { return key != policy.AnyNode && widths[key] == 0 })
	if i < 0 {
		return nil
	}
	key := string(s.topology.Keys[i])
	return aboutDemandSource(key, fmt.Sprintf(
		"demand is measured by zone, so a busy %.*q in it is not seen; name clients that gather instead", maxValueInMessage, key))
}
