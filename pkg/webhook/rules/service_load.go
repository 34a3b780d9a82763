package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// isBounded reports whether the proxy bounds the load of the Service's endpoints.
func (s *subject) isBounded() bool { return s.isServed() && s.topology.MaxLoad > 0 }

// boundAnnotations returns the annotations that request a load bound.
func (s *subject) boundAnnotations() []string {
	var bounds []string
	if _, present := s.annotation(policy.MaxLoadAnnotation); present {
		bounds = append(bounds, policy.MaxLoadAnnotation)
	}
	if s.mode.IsBalanced() {
		bounds = append(bounds, s.mode.Annotation)
	}
	return bounds
}

// violationsFor returns a violation for each of the annotations, with the same reason. The violations do not depend on
// the annotations' values: another bound would not fix them.
func (s *subject) violationsFor(annotations []string, reason string, inputs ...string) (violations []Violation) {
	for _, key := range annotations {
		inputs := append(slices.Clone(inputs), s.Metadata.Annotations[key])
		violations = append(violations, violationOf(field.Forbidden(annotation(key), reason), "", inputs...))
	}
	return violations
}

// invalidMaxLoad finds invalid load bounds.
func invalidMaxLoad(s *subject) []Violation {
	text, present := s.annotation(policy.MaxLoadAnnotation)
	if !present {
		return nil
	}
	if _, err := policy.ParseMaxLoad(text); err == nil {
		return nil
	}
	return oneViolation(errorOf(field.ErrorTypeInvalid, annotation(policy.MaxLoadAnnotation), text, policy.InvalidMaxLoad), text)
}

// demandSettings returns the annotations that configure the demand for which a bound is planned.
func (s *subject) demandSettings() []string {
	var settings []string
	for _, key := range []string{policy.ClientsAnnotation, policy.DemandSourceAnnotation} {
		if _, present := s.annotation(key); present {
			settings = append(settings, key)
		}
	}
	return settings
}

// nothingToBound finds load bounds and demand settings of a Service that prefers no endpoint, whatever the cluster's
// bound is. Invalid keys count as a preference.
func nothingToBound(s *subject) []Violation {
	distribution, _ := s.distribution()
	if s.hasKeys && s.keys == nil || policy.KeysToBound(s.keys, distribution, s.mode) != nil {
		return nil
	}
	return s.violationsFor(append(s.boundAnnotations(), s.demandSettings()...), policy.ReasonNothingToBound(s.keys), s.keysText, distribution)
}

// boundWithMode finds load bounds that topology aware routing overrides, and a balanced mode that another annotation
// overrides.
func boundWithMode(s *subject) (violations []Violation) {
	if s.mode.IsAuto() {
		violations = s.violationsFor(s.boundAnnotations(), policy.ReasonBoundWithAuto(s.mode))
	}
	if policy.OverridesBalanced(s.Metadata.Annotations) {
		violations = append(violations, s.violationsFor([]string{policy.TopologyModeAnnotation}, policy.BalancedConflict)...)
	}
	return violations
}

// boundWithLocalPolicy finds load bounds with externalTrafficPolicy: Local.
func boundWithLocalPolicy(s *subject) []Violation {
	if s.Spec.ExternalTrafficPolicy != localPolicy {
		return nil
	}
	return s.violationsFor(s.boundAnnotations(), policy.LocalConflict+"; "+policy.LocalRemedy)
}

// invalidClients finds errors in the list of clients.
func invalidClients(s *subject) (violations []Violation) {
	text, present := s.annotation(policy.ClientsAnnotation)
	if !present {
		return nil
	}
	_, err := policy.ParseClients(text, s.Metadata.Namespace)
	var errs policy.EntryErrors
	if !errors.As(err, &errs) {
		return nil
	}
	for _, entryErr := range errs {
		violations = append(violations, listViolation(entryErr, text, policy.ClientsAnnotation))
	}
	return violations
}

// demandWithoutBound finds clients or a demand source of a Service that prefers endpoints, but has no bound of its own.
func demandWithoutBound(s *subject) (violations []Violation) {
	if !s.isServed() || len(s.boundAnnotations()) > 0 || len(nothingToBound(s)) > 0 {
		return nil
	}
	const detail = policy.NeedsBound + ", or set the proxy's --default-max-load"
	for _, key := range s.demandSettings() {
		value := s.Metadata.Annotations[key]
		violations = append(violations, violationOf(errorOf(field.ErrorTypeInvalid, annotation(key), value, detail), "", value))
	}
	return violations
}

// namedClients returns the clients of a Service, if its proxy uses them.
func (s *subject) namedClients() []string {
	text, present := s.annotation(policy.ClientsAnnotation)
	if !present || !s.isServed() {
		return nil
	}
	clients, _ := policy.ParseClients(text, s.Metadata.Namespace) // none if they are invalid
	return clients
}

// selfClient finds a Service that is its own client.
func selfClient(s *subject) []Violation {
	self := s.ownName()
	if !slices.Contains(s.namedClients(), self) {
		return nil
	}
	const detail = "this is the Service itself, which is right only if its endpoints call one another; list the Services that call it"
	return oneViolation(errorOf(field.ErrorTypeInvalid, annotation(policy.ClientsAnnotation), self, detail), self)
}

func (s *subject) ownName() string { return s.Metadata.Namespace + "/" + s.Metadata.Name }

// unknownClients finds clients that do not exist.
func unknownClients(s *subject) (violations []Violation) {
	if s.facts.Services == nil {
		return nil
	}
	for _, client := range s.namedClients() {
		namespace, name, _ := strings.Cut(client, "/")
		names, known := s.facts.Services.Names(namespace)
		if !known || slices.Contains(names, name) || client == s.ownName() {
			continue
		}
		detail := fmt.Sprintf("Service %s does not exist", client)
		if suggestion := policy.Suggest(name, slices.Sorted(slices.Values(names))...); suggestion != "" {
			detail = fmt.Sprintf("%s; did you mean %s/%s?", detail, namespace, suggestion)
		} else {
			detail += "; it has no demand until it exists"
		}
		err := errorOf(field.ErrorTypeInvalid, annotation(policy.ClientsAnnotation), client, detail)
		violations = append(violations, violationOf(err, client))
	}
	return violations
}

// boundWithAffinity finds a load bound with session affinity.
func boundWithAffinity(s *subject) []Violation {
	if !s.isBounded() || s.Spec.SessionAffinity != clientIPAffinity {
		return nil
	}
	const detail = "the load bound does not count clients with session affinity, which stay with their endpoints: a load may exceed max-load"
	return oneViolation(errorOf(field.ErrorTypeInvalid, field.NewPath("spec", "sessionAffinity"), clientIPAffinity, detail), clientIPAffinity)
}
