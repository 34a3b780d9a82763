package rules

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// distributionPath is the field beside which annotations have to stand.
var distributionPath = field.NewPath("spec", "trafficDistribution")

// findLocalConflict finds topology keys beside externalTrafficPolicy: Local (SVC006). Wrong keys conflict too: the conflict is not new
// once they are right.
func findLocalConflict(s *subject) []finding {
	if !s.hasKeys || s.Spec.ExternalTrafficPolicy != localPolicy || !policy.ConflictsWithLocal(s.keys) {
		return nil
	}
	return []finding{findingOf("SVC006", field.Forbidden(annotation(policy.TopologyKeysAnnotation),
		policy.LocalConflict+"; "+policy.LocalRemedy), "", s.keysText)}
}

// findModeConflict finds topology keys beside topology aware routing (SVC007).
func findModeConflict(s *subject) []finding {
	if !s.hasKeys || !s.mode.IsAuto() {
		return nil
	}
	return []finding{findingOf(keysBesideMode, field.Forbidden(annotation(policy.TopologyKeysAnnotation),
		"may not be used with "+s.mode.Annotation+"="+s.mode.Value+"; keep one of them"), "", s.keysText)}
}

// findUnusedDistribution finds a trafficDistribution that gives way to an annotation (SVC020, SVC021).
func findUnusedDistribution(s *subject) []finding {
	value, present := s.distribution()
	if !present {
		return nil
	}
	var findings []finding
	if s.mode.IsAuto() {
		detail := fmt.Sprintf("ignored because %s=%s takes precedence; remove one of them", nameIn(s.mode.Annotation), s.mode.Value)
		findings = append(findings, findingOf(distributionBesideMode,
			errorOf(field.ErrorTypeInvalid, distributionPath, value, detail), value, s.mode.Annotation, s.mode.Value))
	}
	if s.hasKeys && s.isServed() {
		detail := "ignored by this proxy because " + policy.TopologyKeysAnnotation + " takes precedence; remove one of them"
		findings = append(findings, findingOf(distributionBesideKeys,
			errorOf(field.ErrorTypeInvalid, distributionPath, value, detail), value, s.keysText))
	}
	return findings
}

// nameIn is the name in the key of an annotation, without the domain.
func nameIn(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
