package rules

import (
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// DecideDefault chooses the topology setting to add to a Service that has none. The first of these sources with a
// setting decides, even if it decides that nothing is added:
//
//	the Service   any topology setting of its own, even an empty or invalid one
//	the opt-out   the label on the Service or its Namespace
//	the Namespace its annotations
//	the cluster   settings.Default
//
// The chosen default is then checked against the Service (defaulting_skip.go). isUpdate is false if the Service is
// created. A second decision about a Service with its default adds nothing.
func DecideDefault(
	service *Service, namespace NamespaceDefaults, facts Facts, settings *Settings, isUpdate bool,
) DefaultDecision {
	if settings == nil {
		settings = &Settings{}
	}
	if service.Metadata.DeletionTimestamp != "" {
		return DefaultDecision{Source: FromService, Reason: "the Service is being deleted"}
	}
	if reason := explicitSetting(service); reason != "" {
		return DefaultDecision{Source: FromService, Reason: reason}
	}
	if reason := optOutReason(service, namespace); reason != "" {
		return DefaultDecision{Source: FromOptOut, Reason: reason}
	}
	if slices.Contains(settings.ExcludedNamespaces, service.Metadata.Namespace) {
		return DefaultDecision{Source: FromCluster, Reason: "the configuration excludes this Namespace"}
	}
	if !namespace.IsLoaded {
		return DefaultDecision{Source: FromNone, Reason: "the Namespace is not known yet"}
	}
	candidate := inheritedDefault(namespace, settings)
	if candidate.Add == nil {
		return candidate
	}
	dctx := defaultingContext{service: service, facts: facts, settings: settings, isUpdate: isUpdate, candidate: *candidate.Add}
	if reason := dctx.exemption(); reason != "" {
		return DefaultDecision{Source: candidate.Source, Reason: reason}
	}
	if rule := dctx.deniedBy(); rule != "" {
		return DefaultDecision{Source: candidate.Source, Reason: string(rule) + " would deny the Service with this default"}
	}
	return candidate
}

// explicitSetting names a topology setting of the Service itself; empty if it has none. A default would override that
// setting: EndpointSlice controllers ignore trafficDistribution if topology-mode=Auto is set. With
// topology-aware-hints, the API server would even reject the Service, because it requires both annotations to be equal.
func explicitSetting(service *Service) string {
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

// optOutReason returns which object has the label that disables defaults; empty if none has. An unknown Namespace has
// no labels here; the caller stops before it adds a default.
func optOutReason(service *Service, namespace NamespaceDefaults) string {
	const hasLabel = " has the label " + policy.AdmissionLabel + "=" + policy.AdmissionDisabled
	switch policy.AdmissionDisabled {
	case service.Metadata.Labels[policy.AdmissionLabel]:
		return "the Service" + hasLabel
	case namespace.Labels[policy.AdmissionLabel]:
		return "the Namespace" + hasLabel
	}
	return ""
}

// inheritedDefault returns the default of a Namespace, or else of the cluster.
func inheritedDefault(namespace NamespaceDefaults, settings *Settings) DefaultDecision {
	decision, isSet := namespace.decide()
	switch {
	case isSet:
		return decision
	case settings.Default == nil:
		return DefaultDecision{Source: FromNone}
	}
	if err := settings.Default.Check(); err != nil {
		return DefaultDecision{Source: FromCluster, Reason: fmt.Sprintf("the configuration's default cannot be used: %s", err)}
	}
	add := *settings.Default
	return DefaultDecision{Add: &add, Source: FromCluster}
}
