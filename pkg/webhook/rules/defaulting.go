package rules

import (
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// DecideDefault chooses the topology setting that a Service is given because it has none. The first of these that says
// anything decides, also if it says that nothing is added:
//
//	the Service   any topology setting of its own, even an empty or wrong one: we do not guess what its owner meant
//	the opt-out   the label on the Service or its Namespace
//	the Namespace its annotations
//	the cluster   settings.Default
//
// What they choose is then held against the Service (see standsInTheWay). isUpdate says that the Service is
// updated, not created. Deciding again about a Service that was given its default adds nothing.
func DecideDefault(
	service *Service, namespace NamespaceDefaults, facts Facts, settings *Settings, isUpdate bool,
) DefaultDecision {
	if settings == nil {
		settings = &Settings{}
	}
	if service.Metadata.DeletionTimestamp != "" {
		return DefaultDecision{Origin: FromService, Reason: "it is being deleted"}
	}
	if reason := ownSetting(service); reason != "" {
		return DefaultDecision{Origin: FromService, Reason: reason}
	}
	if reason := optedOut(service, namespace); reason != "" {
		return DefaultDecision{Origin: FromOptOut, Reason: reason}
	}
	if slices.Contains(settings.ExcludedNamespaces, service.Metadata.Namespace) {
		return DefaultDecision{Origin: FromCluster, Reason: "the configuration excludes this Namespace"}
	}
	if !namespace.IsLoaded {
		return DefaultDecision{Origin: FromNone, Reason: "the Namespace is not known yet"}
	}
	candidate := inheritedDefault(namespace, settings)
	if candidate.Add == nil {
		return candidate
	}
	situation := defaultingContext{service: service, facts: facts, settings: settings, isUpdate: isUpdate, setting: *candidate.Add}
	if reason := situation.exemptBecause(); reason != "" {
		return DefaultDecision{Origin: candidate.Origin, Reason: reason}
	}
	if rule := situation.deniedBy(); rule != "" {
		return DefaultDecision{Origin: candidate.Origin, Reason: string(rule) + " would deny the Service with it"}
	}
	return candidate
}

// ownSetting names the topology setting that a Service has of its own; empty without one. A default beside it
// would override what its owner asked for: EndpointSlice controllers ignore trafficDistribution beside
// topology-mode=Auto. Beside topology-aware-hints the API server would even refuse the Service, for it wants both
// annotations to be the same.
func ownSetting(service *Service) string {
	if service.Spec.TrafficDistribution != nil {
		return "spec.trafficDistribution is set"
	}
	for _, annotation := range topologySettings {
		if _, present := service.Metadata.Annotations[annotation]; present {
			return fmt.Sprintf("the annotation %s is set", annotation)
		}
	}
	return ""
}

// optedOut says whose label keeps defaults away. A Namespace that is not known has no labels yet; the caller stops
// there.
func optedOut(service *Service, namespace NamespaceDefaults) string {
	const hasLabel = " has the label " + policy.AdmissionLabel + "=" + policy.AdmissionDisabled
	switch policy.AdmissionDisabled {
	case service.Metadata.Labels[policy.AdmissionLabel]:
		return "the Service" + hasLabel
	case namespace.Labels[policy.AdmissionLabel]:
		return "the Namespace" + hasLabel
	}
	return ""
}

// inheritedDefault returns the default that a Namespace has, or else the cluster.
func inheritedDefault(namespace NamespaceDefaults, settings *Settings) DefaultDecision {
	chosen, saysAnything := namespace.choose()
	switch {
	case saysAnything:
		return chosen
	case settings.Default == nil:
		return DefaultDecision{Origin: FromNone}
	}
	if err := settings.Default.Check(); err != nil {
		return DefaultDecision{Origin: FromCluster, Reason: fmt.Sprintf("the configuration's default cannot be used: %s", err)}
	}
	add := *settings.Default
	return DefaultDecision{Add: &add, Origin: FromCluster}
}
