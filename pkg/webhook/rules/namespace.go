package rules

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// unknownDefault finds a default with an unknown value. None is always valid.
func unknownDefault(key string, values ...string) func(*subject) []Violation {
	values = append(values, policy.None)
	return func(s *subject) []Violation {
		value, present := s.Metadata.Annotations[key]
		if !present || slices.Contains(values, value) {
			return nil
		}
		err := field.NotSupported(annotation(key), truncateValue(value), values)
		if suggestion := suggestValue(value, values); suggestion != "" {
			err.Detail = fmt.Sprintf("did you mean %q? %s", suggestion, err.Detail)
		}
		return oneViolation(err, value)
	}
}

// suggestValue returns the value to suggest; empty if none is close.
func suggestValue(value string, values []string) string {
	if matchIgnoringCase(value, []string{policy.PreferClose}) != "" && slices.Contains(values, policy.PreferSameZone) {
		return policy.PreferSameZone // they are equivalent
	}
	return policy.Suggest(value, values...)
}

// invalidDefaultKeys finds errors in the default topology keys.
func invalidDefaultKeys(s *subject) (violations []Violation) {
	text, present := s.Metadata.Annotations[policy.DefaultTopologyKeysAnnotation]
	if !present || text == policy.None {
		return nil
	}
	_, errs := parseKeys(text)
	for _, err := range errs {
		violations = append(violations, listViolation(err, text, policy.DefaultTopologyKeysAnnotation))
	}
	return violations
}

// multipleDefaults finds defaults after the first one.
func multipleDefaults(s *subject) (violations []Violation) {
	seen := false
	for _, key := range knownNamespaceKeys.annotations {
		if _, present := s.Metadata.Annotations[key]; !present {
			continue
		}
		if seen {
			err := field.Forbidden(annotation(key), "set only one of default-topology-mode, default-topology-keys, default-traffic-distribution")
			violations = append(violations, violationOf(err, ""))
		}
		seen = true
	}
	return violations
}
