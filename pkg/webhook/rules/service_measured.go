package rules

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// isMeasured reports whether the proxy plans the Service's bound with measured demand, once it is available.
func (s *subject) isMeasured() bool { return s.isBounded() && s.topology.Measured }

// demandSourceViolation returns a violation of the demand source annotation. value is part of its identity.
func demandSourceViolation(value, detail string) []Violation {
	return oneViolation(errorOf(field.ErrorTypeInvalid, annotation(policy.DemandSourceAnnotation), value, detail), value)
}

// unpublishedDemand finds measured demand in a cluster in which none is published.
func unpublishedDemand(s *subject) []Violation {
	if !s.facts.NoDemand || !s.isMeasured() {
		return nil
	}
	return demandSourceViolation(policy.Measured, string(v1alpha1.DemandNotPublished))
}

// keysSplittingZones finds demand that is measured by zone, with a key that may divide zones. It reports only the first
// such key.
func keysSplittingZones(s *subject) []Violation {
	if !s.isMeasured() {
		return nil
	}
	i := slices.IndexFunc(s.topology.Keys, func(key policy.Key) bool { return key != policy.AnyNode && keyWidths[key] == 0 })
	if i < 0 {
		return nil
	}
	key := string(s.topology.Keys[i])
	return demandSourceViolation(key, fmt.Sprintf(
		"demand is measured by zone, so skew by %.*q is not measured; list the client Services instead", maxValueInMessage, key))
}
