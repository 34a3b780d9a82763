package rules

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// distributionPath is the field that annotations may conflict with.
var distributionPath = field.NewPath("spec", "trafficDistribution")

// keysWithLocalPolicy finds topology keys with externalTrafficPolicy: Local. Invalid keys conflict too: otherwise the
// conflict would look new once they are valid.
func keysWithLocalPolicy(s *subject) []Violation {
	if !s.hasKeys || s.Spec.ExternalTrafficPolicy != localPolicy || !policy.ConflictsWithLocal(s.keys) {
		return nil
	}
	return oneViolation(field.Forbidden(annotation(policy.TopologyKeysAnnotation), policy.LocalConflict+"; "+policy.LocalRemedy), "",
		s.keysText)
}

// keysWithMode finds topology keys with topology aware routing.
func keysWithMode(s *subject) []Violation {
	if !s.hasKeys || !s.mode.IsAuto() {
		return nil
	}
	return oneViolation(field.Forbidden(annotation(policy.TopologyKeysAnnotation),
		"may not be used with "+s.mode.Annotation+"="+s.mode.Value+"; keep one of them"), "", s.keysText)
}

// distributionWithMode finds a trafficDistribution that topology aware routing overrides.
func distributionWithMode(s *subject) []Violation {
	value, present := s.distribution()
	if !present || !s.mode.IsAuto() {
		return nil
	}
	detail := fmt.Sprintf("ignored because %s=%s takes precedence; remove one of them", keyName(s.mode.Annotation), s.mode.Value)
	return oneViolation(errorOf(field.ErrorTypeInvalid, distributionPath, value, detail), value, s.mode.Annotation, s.mode.Value)
}

// distributionWithKeys finds a trafficDistribution that topology keys override.
func distributionWithKeys(s *subject) []Violation {
	value, present := s.distribution()
	if !present || !s.hasKeys || !s.isServed() {
		return nil
	}
	const detail = "ignored by this proxy because " + policy.TopologyKeysAnnotation + " takes precedence; remove one of them"
	return oneViolation(errorOf(field.ErrorTypeInvalid, distributionPath, value, detail), value, s.keysText)
}

// keyName returns the name in the key of an annotation, without the domain.
func keyName(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
