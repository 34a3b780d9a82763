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

// aboutClients is a violation by the annotation of clients. It depends on value.
func aboutClients(value, detail string) []Violation {
	return single(errorOf(field.ErrorTypeInvalid, annotation(policy.ClientsAnnotation), value, detail), value)
}

// unpublishedDemand: measured clients whose demand nobody publishes.
func unpublishedDemand(s *subject) []Violation {
	if !s.facts.NoDemand || !s.isMeasured() {
		return nil
	}
	return aboutClients(policy.Measured, string(servicedemand.NotPublished))
}

// dividedZones: clients that are measured by zone, beside a key that may divide zones. The first such key is enough.
func dividedZones(s *subject) []Violation {
	if !s.isMeasured() {
		return nil
	}
	i := slices.IndexFunc(s.topology.Keys, func(key policy.Key) bool { return key != policy.AnyNode && widths[key] == 0 })
	if i < 0 {
		return nil
	}
	key := string(s.topology.Keys[i])
	return aboutClients(key, fmt.Sprintf(
		"demand is measured by zone, so a busy %.*q in it is not seen; name clients that gather", maxWord, key))
}

// measuredHeadless: a headless Service with measured clients, if DNS answers by its keys.
func measuredHeadless(s *subject) []Violation {
	text, present := s.annotation(policy.ClientsAnnotation)
	if !present || !s.isAnswered() {
		return nil
	}
	if _, measured, _ := policy.ParseClients(text, s.Metadata.Namespace); !measured {
		return nil
	}
	return aboutClients(policy.Measured, policy.MeasuredHeadless)
}
