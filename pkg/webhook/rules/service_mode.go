package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// modeValues are the modes that Kubernetes documents, and distributions the values of trafficDistribution.
var (
	modeValues    = []string{policy.ModeAuto, policy.ModeAutoLower, policy.ModeDisabled, policy.ModeDisabledLower}
	distributions = []string{policy.PreferSameZone, policy.PreferSameNode, policy.PreferClose}
)

// misspeltMode finds topology modes that are nearly a known value, and that Kubernetes silently treats as Disabled.
func misspeltMode(s *subject) []Violation {
	return invalidModes(s, func(value string) string {
		if suggestion := matchIgnoringCase(value, modeValues); suggestion != "" {
			return fmt.Sprintf("did you mean %q? Other spellings are treated as Disabled", suggestion)
		}
		if suggestion := matchIgnoringCase(value, distributions); suggestion != "" {
			return "this is a value of spec.trafficDistribution; remove the annotation, and set trafficDistribution: " + suggestion
		}
		return ""
	})
}

// unknownMode finds all other topology modes that Kubernetes silently treats as Disabled. A mode with a domain is
// allowed: Kubernetes leaves those to other implementations.
func unknownMode(s *subject) []Violation {
	return invalidModes(s, func(value string) string {
		if policy.IsUnknownMode(value) { // unknownVicinityMode reports it
			return ""
		}
		if isTypoOfBalanced(value) {
			return fmt.Sprintf("%q is treated as Disabled; did you mean %q?", Cut(value, maxValueInMessage), policy.ModeBalanced)
		}
		vendor, name, hasDomain := strings.Cut(value, "/")
		if hasDomain && vendor != "" && name != "" || matchIgnoringCase(value, modeValues) != "" ||
			matchIgnoringCase(value, distributions) != "" {
			return ""
		}
		if suggestion := policy.Suggest(value, policy.ModeAuto, policy.ModeDisabled, policy.ModeBalanced); suggestion != "" {
			return fmt.Sprintf("%q is treated as Disabled; did you mean %q?", Cut(value, maxValueInMessage), suggestion)
		}
		return fmt.Sprintf("%q is treated as Disabled; use Auto, Disabled or %s", Cut(value, maxValueInMessage), policy.ModeBalanced)
	})
}

// isTypoOfBalanced reports whether a mode of any domain is nearly vicinity.dev/balanced.
func isTypoOfBalanced(value string) bool {
	return len(value) <= maxKey && policy.IsTypo(strings.ToLower(value), policy.ModeBalanced)
}

// unknownVicinityMode finds unknown modes with the domain vicinity.dev.
func unknownVicinityMode(s *subject) []Violation {
	return invalidModes(s, func(value string) string {
		if !policy.IsUnknownMode(value) {
			return ""
		}
		return policy.SuggestMode(value)
	})
}

// invalidModes returns violations of modes that Kubernetes does not document and for which detailOf returns a text.
func invalidModes(s *subject, detailOf func(value string) string) (violations []Violation) {
	for _, key := range policy.ModeAnnotations {
		value, present := s.Metadata.Annotations[key]
		if !present || slices.Contains(modeValues, value) || value == policy.ModeBalanced {
			continue
		}
		if detail := detailOf(value); detail != "" {
			err := errorOf(field.ErrorTypeNotSupported, annotation(key), value, detail)
			violations = append(violations, violationOf(err, value))
		}
	}
	return violations
}

// maxValueInMessage is how much of a value a warning repeats, in addition to its path.
const maxValueInMessage = 40

// matchIgnoringCase returns the known word that is equal except for case and spaces; empty if there is none.
func matchIgnoringCase(value string, known []string) string {
	const maxLength = 64 // including spaces
	if len(value) > maxLength {
		return ""
	}
	value = strings.Join(strings.Fields(value), "")
	i := slices.IndexFunc(known, func(other string) bool { return strings.EqualFold(value, other) })
	if i < 0 {
		return ""
	}
	return known[i]
}
