package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The rules about a bound of the load are package policy's: whatever annotation the proxy ignores is denied.

// words are what the proxy reads.
func (s *subject) words() policy.Words {
	distribution, _ := s.distribution()
	return policy.Words{
		Service: s.Metadata.Namespace + "/" + s.Metadata.Name, Annotations: s.Metadata.Annotations,
		ExternalTrafficLocal: s.Spec.ExternalTrafficPolicy == localPolicy, TrafficDistribution: distribution,
	}
}

// malformedBound: a bound that is no percentage from 100 to 1000.
func malformedBound(s *subject) []Violation {
	value, present := s.Metadata.Annotations[policy.MaxLoadAnnotation]
	if !present {
		return nil
	}
	if _, err := policy.ParseMaxLoad(value); err != nil {
		return single(errorOf(field.ErrorTypeInvalid, annotation(policy.MaxLoadAnnotation), value, err.Error()), value)
	}
	return nil
}

// boundOnNothing: a bound that is well written, and has nothing to work on, or contradicts another setting.
func boundOnNothing(s *subject) (violations []Violation) {
	if len(malformedBound(s)) > 0 {
		return nil
	}
	words := s.words()
	for _, ignored := range policy.Parse(words).Ignored {
		if ignored.Annotation == policy.TopologyKeysAnnotation || ignored.Annotation == policy.ClientsAnnotation {
			continue
		}
		violations = append(violations, violationOf(field.Forbidden(annotation(ignored.Annotation), ignored.Reason),
			"", s.keysText, s.mode.Value, words.TrafficDistribution))
	}
	return violations
}

// wrongClients: a list of clients that is wrong, or stands beside no bound.
func wrongClients(s *subject) []Violation {
	ignored := policy.Parse(s.words()).Ignored
	at := slices.IndexFunc(ignored, func(one policy.Ignored) bool { return one.Annotation == policy.ClientsAnnotation })
	if at < 0 {
		return nil
	}
	value := s.Metadata.Annotations[policy.ClientsAnnotation]
	return single(errorOf(field.ErrorTypeInvalid, annotation(policy.ClientsAnnotation), value, ignored[at].Reason),
		value, s.Metadata.Annotations[policy.MaxLoadAnnotation], s.mode.Value)
}
