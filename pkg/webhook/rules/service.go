package rules

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// subject is an object with its parsed topology settings. For a Namespace it has only the metadata.
type subject struct {
	*Service
	// old is the object that this one replaces; nil if there is none. The old object replaces itself.
	old       *Service
	facts     Facts
	proxyName string
	// dnsByTopology is Settings.DNSByTopology.
	dnsByTopology bool

	keysText  string // the value of the annotation
	hasKeys   bool
	keys      []policy.Key // nil if they are invalid
	keyErrors policy.EntryErrors
	mode      policy.ModeSetting
	// topology is the proxy's result, if the proxy serves the Service and the cluster has no default bound.
	topology policy.Topology
}

func subjectOf(old, service *Service, facts Facts, settings *Settings) *subject {
	s := &subject{
		Service: service, old: old, facts: facts, proxyName: settings.ProxyName, dnsByTopology: settings.DNSByTopology,
		mode: policy.ModeOf(service.Metadata.Annotations),
	}
	if s.keysText, s.hasKeys = service.Metadata.Annotations[policy.TopologyKeysAnnotation]; s.hasKeys {
		s.keys, s.keyErrors = parseKeys(s.keysText)
	}
	value, _ := s.distribution()
	s.topology, _ = policy.Parse(policy.Input{
		Namespace: service.Metadata.Namespace, Annotations: service.Metadata.Annotations, TrafficDistribution: value,
		ExternalTrafficLocal: service.Spec.ExternalTrafficPolicy == localPolicy,
	})
	return s
}

// annotation returns an annotation of the object.
func (s *subject) annotation(key string) (value string, present bool) {
	value, present = s.Metadata.Annotations[key]
	return value, present
}

// isExternalName and isHeadless report whether no proxy serves the Service because of its type. In a review an ordinary
// Service may have no ClusterIP yet.
func (s *subject) isExternalName() bool { return s.Spec.Type == typeExternalName }

func (s *subject) isHeadless() bool { return !s.isExternalName() && s.Spec.ClusterIP == clusterIPNone }

// isServed reports whether Vicinity's proxy serves the Service.
func (s *subject) isServed() bool {
	return !s.isExternalName() && !s.isHeadless() && policy.IsHandledBy(s.Metadata.Labels, s.proxyName)
}

// isServedByDNS reports whether Vicinity's proxies apply the Service's topology keys to DNS responses.
func (s *subject) isServedByDNS() bool {
	return s.dnsByTopology && s.hasKeys && s.isHeadless() && policy.IsHandledBy(s.Metadata.Labels, s.proxyName)
}

// distribution returns spec.trafficDistribution.
func (s *subject) distribution() (value string, present bool) {
	if s.Spec.TrafficDistribution == nil {
		return "", false
	}
	return *s.Spec.TrafficDistribution, true
}
