package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Kubernetes' values for the fields of a Service.
const (
	typeExternalName  = "ExternalName"
	clusterIPNone     = "None"
	localPolicy       = "Local"
	clientIPAffinity  = "ClientIP"
	kubernetesService = "kubernetes" // in the Namespace default
)

// defaultingContext is a Service with the default that was chosen for it, and everything that may prevent it.
type defaultingContext struct {
	service   *Service
	facts     Facts
	settings  *Settings
	isUpdate  bool
	candidate Default
}

// minDistributionVersion is the first version whose API servers accept PreferSameZone and PreferSameNode without a
// feature gate (KEP-3015). Earlier ones reject a Service that has them.
var minDistributionVersion = version.MajorMinor(1, 34)

// exemption returns why a Service does not get the default that was chosen for it; empty if it does. It checks the
// kind of Service, its proxy, its other settings, and the cluster, in this order.
func (c defaultingContext) exemption() string {
	metadata, spec := &c.service.Metadata, &c.service.Spec
	switch {
	case metadata.Namespace == "default" && metadata.Name == kubernetesService:
		// Hints would have no effect, because this slice contains no zones (kubernetes/kubernetes#138779).
		return "the API server writes the EndpointSlices of default/kubernetes, without zones"
	case spec.Type == typeExternalName:
		return "ExternalName Services have no proxy"
	case spec.ClusterIP == clusterIPNone: // a new Service has no ClusterIP yet when it is reviewed; None is final
		return "headless Services have no proxy"
	case !policy.IsHandledBy(metadata.Labels, c.settings.ProxyName):
		return "another proxy serves it"
	case c.isUpdate && !c.settings.DefaultOnUpdate:
		// A changed default must not move live connections at the next unrelated edit.
		return "only new Services get defaults"
	case len(spec.Selector) == 0 && c.candidate.needsHints():
		return "without a selector no controller writes EndpointSlice hints"
	case spec.InternalTrafficPolicy == localPolicy:
		return "internalTrafficPolicy=Local overrides it"
	case spec.ExternalTrafficPolicy == localPolicy && c.candidate.conflictsWithLocal():
		return "topology keys may not be used with externalTrafficPolicy=Local"
	case spec.ExternalTrafficPolicy == localPolicy && c.candidate.isBalanced(): // a load bound also concerns external clients
		return "a load bound may not be used with externalTrafficPolicy=Local"
	case spec.SessionAffinity == clientIPAffinity && !c.settings.DefaultWithAffinity:
		return "sessionAffinity=ClientIP would be kept within fewer endpoints"
	}
	return c.clusterExemption()
}

// clusterExemption returns why the cluster prevents a default: a default must never cause a Service to be
// rejected. With a single zone, topology-mode=Auto makes the EndpointSlice controller write an Event for each of these
// Services repeatedly, and no setting about zones alone has an effect.
func (c defaultingContext) clusterExemption() string {
	const minZones = 2
	isDistribution, needsZones := c.candidate.Setting == TrafficDistribution, c.candidate.needsZones()
	switch {
	case isDistribution && c.facts.Kubernetes == nil:
		return "the version of Kubernetes is not known yet"
	case isDistribution && c.facts.Kubernetes.LessThan(minDistributionVersion):
		return "Kubernetes before 1.34 does not support this trafficDistribution"
	case needsZones && c.facts.Nodes == nil:
		return "the Nodes are not known yet"
	case needsZones && c.facts.Nodes.Zones() < minZones:
		return "the Nodes are in fewer than two zones"
	}
	return ""
}

// deniedBy returns the rule that would deny the Service because of its default; empty if there is none. An
// administrator may have set a rule to deny that defaults violate, such as SVC030 where no Node has the rack of a
// Namespace's keys.
func (c defaultingContext) deniedBy() ID {
	withDefault := ReviewService(nil, c.candidate.applyTo(c.service), c.facts, c.settings)
	if len(withDefault.Denied) == 0 { // nearly always
		return ""
	}
	withoutDefault := ReviewService(nil, c.service, c.facts, c.settings)
	for _, violation := range withDefault.Denied {
		isSame := func(other Violation) bool {
			return other.Rule == violation.Rule && other.Error.Field == violation.Error.Field
		}
		if !slices.ContainsFunc(withoutDefault.Denied, isSame) {
			return violation.Rule
		}
	}
	return ""
}
