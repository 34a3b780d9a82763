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

// situation is a Service for which a default has been chosen, and all that may stand in the way.
type situation struct {
	service  *Service
	facts    Facts
	settings *Settings
	isUpdate bool
	setting  Default
}

// obstacle is a row of the table of Services that are given no default.
type obstacle struct {
	stands func(s situation) bool
	reason string
}

// obstacles are held against each Service in this order: what it is, who serves it, what else it asks for, and the
// cluster.
var obstacles = []obstacle{
	{situation.isTheAPIServers, "the API server writes the EndpointSlices of default/kubernetes, without zones"},
	{situation.isExternalName, "ExternalName Services have no proxy"},
	{situation.isHeadless, "headless Services have no proxy"},
	{situation.isAnothersToServe, "another proxy serves it"},
	{situation.isLateUpdate, "only new Services are given defaults"},
	{situation.lacksHints, "without a selector no controller writes EndpointSlice hints"},
	{situation.staysOnItsNode, "internalTrafficPolicy=Local overrides it"},
	{situation.contradictsExternalLocal, "topology keys may not be used with externalTrafficPolicy=Local"},
	{situation.contradictsBound, "a bound may not be used with externalTrafficPolicy=Local"},
	{situation.hasAffinity, "sessionAffinity=ClientIP would be kept within fewer endpoints"},
	{situation.lacksVersion, "the version of Kubernetes is not known yet"},
	{situation.isTooEarly, "Kubernetes before 1.34 does not know this trafficDistribution"},
	{situation.lacksNodes, "the Nodes are not known yet"},
	{situation.lacksZones, "the Nodes are in fewer than two zones"},
}

// standsInTheWay is why a Service is not given the default that was chosen for it; empty if nothing stands in the way.
func (s situation) standsInTheWay() string {
	for _, obstacle := range obstacles {
		if obstacle.stands(s) {
			return obstacle.reason
		}
	}
	return ""
}

// isTheAPIServers: a default would ask for hints, but its EndpointSlice names no zones (kubernetes/kubernetes#138779).
func (s situation) isTheAPIServers() bool {
	return s.service.Metadata.Namespace == "default" && s.service.Metadata.Name == apiServersService
}

func (s situation) isExternalName() bool { return s.service.Spec.Type == typeExternalName }

// isHeadless: an ordinary Service has no ClusterIP yet when it is reviewed. Only None means that it never has one.
func (s situation) isHeadless() bool { return s.service.Spec.ClusterIP == headless }

func (s situation) isAnothersToServe() bool {
	return !policy.IsHandledBy(s.service.Metadata.Labels, s.settings.ProxyName)
}

// isLateUpdate: a change of a default must not move live connections at the next unrelated edit, unless the settings
// ask for that.
func (s situation) isLateUpdate() bool { return s.isUpdate && !s.settings.DefaultOnUpdate }

func (s situation) lacksHints() bool {
	return len(s.service.Spec.Selector) == 0 && s.setting.needsHints()
}

func (s situation) staysOnItsNode() bool { return s.service.Spec.InternalTrafficPolicy == localPolicy }

// contradictsExternalLocal: topology mode and traffic distribution are given nevertheless, for they only concern
// clients within the cluster.
func (s situation) contradictsExternalLocal() bool {
	if s.setting.Setting != TopologyKeys || s.service.Spec.ExternalTrafficPolicy != localPolicy {
		return false
	}
	keys, err := policy.ParseKeys(s.setting.Value)
	return err != nil || policy.ConflictsWithLocal(keys)
}

// contradictsBound: a bound is about external clients, too.
func (s situation) contradictsBound() bool {
	return s.setting.isBalanced() && s.service.Spec.ExternalTrafficPolicy == localPolicy
}

func (s situation) hasAffinity() bool {
	return s.service.Spec.SessionAffinity == affinityByClient && !s.settings.DefaultWithAffinity
}

// knowsDistributions is the version from which API servers take PreferSameZone and PreferSameNode without a feature
// gate (KEP-3015). Those before refuse a Service that has them.
var knowsDistributions = version.MajorMinor(1, 34)

// lacksVersion and isTooEarly: a default must never be why a Service is refused.
func (s situation) lacksVersion() bool {
	return s.setting.Setting == TrafficDistribution && s.facts.Kubernetes == nil
}

func (s situation) isTooEarly() bool {
	return s.setting.Setting == TrafficDistribution && s.facts.Kubernetes != nil && s.facts.Kubernetes.LessThan(knowsDistributions)
}

// lacksNodes and lacksZones guard settings about zones alone. With a single zone, topology-mode=Auto makes the
// EndpointSlice controller write an Event for each of these Services again and again, and neither setting does
// anything; the others do neither.
func (s situation) lacksNodes() bool { return s.setting.isAboutZones() && s.facts.Nodes == nil }

func (s situation) lacksZones() bool {
	const enough = 2
	return s.setting.isAboutZones() && s.facts.Nodes != nil && s.facts.Nodes.Zones() < enough
}

// deniedBy is the rule by which the Service would be refused because of its default: an administrator may have set one
// to deny that defaults break, such as SVC030 where no Node has the rack of a Namespace's keys. Empty if there is
// none.
func (s situation) deniedBy() ID {
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
