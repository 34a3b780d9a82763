package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// changedProxyName finds a Service that no proxy serves because of its label, or that moves from one proxy to another.
// It is about the change itself, so the old object never has it.
func changedProxyName(s *subject) []Violation {
	name, labelled := s.Metadata.Labels[policy.ServiceProxyNameLabel]
	isChanged := s.old == nil
	if s.old != nil {
		old, wasLabelled := s.old.Metadata.Labels[policy.ServiceProxyNameLabel]
		isChanged = old != name || wasLabelled != labelled
	}
	var detail string
	switch {
	case !isChanged:
		return nil
	case labelled && name == "":
		detail = "an empty name leaves the Service without a proxy; name one, or remove the label"
	case s.old != nil:
		detail = "changing the proxy of a live Service may interrupt traffic until both proxies resync"
	default:
		return nil
	}
	return oneViolation(errorOf(field.ErrorTypeInvalid, label(policy.ServiceProxyNameLabel), name, detail), name)
}

// settingsOfAnotherProxy finds Vicinity annotations on a Service whose proxy does not read them.
func settingsOfAnotherProxy(s *subject) (violations []Violation) {
	if s.isExternalName() || s.isHeadless() || policy.IsHandledBy(s.Metadata.Labels, s.proxyName) {
		return nil
	}
	name, labelled := s.Metadata.Labels[policy.ServiceProxyNameLabel]
	detail := fmt.Sprintf("this Service is handled by proxy %q, which does not read it", Cut(name, maxValueInMessage))
	switch {
	case !labelled:
		detail = fmt.Sprintf("this Service is handled by the default proxy, which does not read it; set label %s=%s",
			policy.ServiceProxyNameLabel, s.proxyName)
	case name == "":
		detail = "no proxy handles this Service, because its service-proxy-name is empty"
	}
	for _, key := range s.vicinityAnnotations() {
		value := s.Metadata.Annotations[key]
		violations = append(violations, violationOf(errorOf(field.ErrorTypeInvalid, annotation(key), value, detail), value, name))
	}
	return violations
}

// vicinityAnnotations returns the annotations that only Vicinity's proxy reads.
func (s *subject) vicinityAnnotations() []string {
	var keys []string
	for _, key := range policy.DomainAnnotations {
		if _, present := s.annotation(key); present {
			keys = append(keys, key)
		}
	}
	if s.mode.IsBalanced() {
		keys = append(keys, s.mode.Annotation)
	}
	return keys
}
