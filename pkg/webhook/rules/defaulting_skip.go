package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Words of Kubernetes in the fields of a Service.
const (
	typeExternalName  = "ExternalName"
	headless          = "None"
	localPolicy       = "Local"
	affinityByClient  = "ClientIP"
	apiServersService = "kubernetes" // in the Namespace default
)

// defaultingContext is a Service for which a default has been chosen, and all that may stand in the way.
type defaultingContext struct {
	service  *Service
	facts    Facts
	settings *Settings
	isUpdate bool
	setting  Default
}

// minDistributionVersion is the version from which API servers take PreferSameZone and PreferSameNode without a feature
// gate (KEP-3015). Those before refuse a Service that has them.
var minDistributionVersion = version.MajorMinor(1, 34)

// exemptBecause is why a Service is not given the default that was chosen for it; empty if nothing stands in the way.
// It looks at what the Service is, who serves it, what else it asks for, and the cluster, in this order.
func (s defaultingContext) exemptBecause() string {
	metadata, spec := &s.service.Metadata, &s.service.Spec
	switch {
	case metadata.Namespace == "default" && metadata.Name == apiServersService:
		// It would ask for hints, but this slice names no zones (kubernetes/kubernetes#138779).
		return "the API server writes the EndpointSlices of default/kubernetes, without zones"
	case spec.Type == typeExternalName:
		return "ExternalName Services have no proxy"
	case spec.ClusterIP == headless: // an ordinary Service has none yet when it is reviewed; None means never
		return "headless Services have no proxy"
	case !policy.IsHandledBy(metadata.Labels, s.settings.ProxyName):
		return "another proxy serves it"
	case s.isUpdate && !s.settings.DefaultOnUpdate:
		// A change of a default must not move live connections at the next unrelated edit.
		return "only new Services are given defaults"
	case len(spec.Selector) == 0 && s.setting.needsHints():
		return "without a selector no controller writes EndpointSlice hints"
	case spec.InternalTrafficPolicy == localPolicy:
		return "internalTrafficPolicy=Local overrides it"
	case spec.ExternalTrafficPolicy == localPolicy && s.setting.conflictsWithLocal():
		return "topology keys may not be used with externalTrafficPolicy=Local"
	case spec.ExternalTrafficPolicy == localPolicy && s.setting.isBalanced(): // a bound is about external clients, too
		return "a bound may not be used with externalTrafficPolicy=Local"
	case spec.SessionAffinity == affinityByClient && !s.settings.DefaultWithAffinity:
		return "sessionAffinity=ClientIP would be kept within fewer endpoints"
	}
	return s.clusterStandsInTheWay()
}

// clusterStandsInTheWay is why the cluster keeps a default away: a default must never be why a Service is refused. With
// a single zone, topology-mode=Auto makes the EndpointSlice controller write an Event for each of these Services again
// and again, and no setting about zones alone does anything.
func (s defaultingContext) clusterStandsInTheWay() string {
	const enough = 2
	isDistribution, isAboutZones := s.setting.Setting == TrafficDistribution, s.setting.isAboutZones()
	switch {
	case isDistribution && s.facts.Kubernetes == nil:
		return "the version of Kubernetes is not known yet"
	case isDistribution && s.facts.Kubernetes.LessThan(minDistributionVersion):
		return "Kubernetes before 1.34 does not know this trafficDistribution"
	case isAboutZones && s.facts.Nodes == nil:
		return "the Nodes are not known yet"
	case isAboutZones && s.facts.Nodes.Zones() < enough:
		return "the Nodes are in fewer than two zones"
	}
	return ""
}

// deniedBy is the rule by which the Service would be refused because of its default: an administrator may have set one
// to deny that defaults break, such as SVC030 where no Node has the rack of a Namespace's keys. Empty if there is
// none.
func (s defaultingContext) deniedBy() ID {
	with := ReviewService(nil, s.setting.applyTo(s.service), s.facts, s.settings)
	if len(with.Denied) == 0 { // nearly always
		return ""
	}
	without := ReviewService(nil, s.service, s.facts, s.settings)
	for _, violation := range with.Denied {
		isSame := func(other Violation) bool {
			return other.Rule == violation.Rule && other.Error.Field == violation.Error.Field
		}
		if !slices.ContainsFunc(without.Denied, isSame) {
			return violation.Rule
		}
	}
	return ""
}
