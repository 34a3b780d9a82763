package rules

import "github.com/vicinity-proxy/vicinity/pkg/policy"

// subject is an object with its topology settings as they are understood. For a Namespace it has only the metadata.
type subject struct {
	*Service
	// before is the object that this one replaces; nil if there is none. An object that was there before replaces itself.
	before    *Service
	facts     Facts
	proxyName string
	// dnsByTopology is that of Settings.
	dnsByTopology bool

	keysText  string // of the annotation
	hasKeys   bool
	keys      []policy.Key // nil if they are wrong
	keyErrors policy.EntryErrors
	mode      policy.ModeSetting
	// topology is what the proxy makes of it, if the Service is its own and the cluster has no bound.
	topology policy.Topology
}

func subjectOf(before, service *Service, facts Facts, settings *Settings) *subject {
	s := &subject{
		Service: service, before: before, facts: facts, proxyName: settings.ProxyName, dnsByTopology: settings.DNSByTopology,
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

// annotation is an annotation of the object.
func (s *subject) annotation(key string) (value string, present bool) {
	value, present = s.Metadata.Annotations[key]
	return value, present
}

// isExternalName and isHeadless: no proxy serves these. In a review an ordinary Service may have no ClusterIP yet.
func (s *subject) isExternalName() bool { return s.Spec.Type == typeExternalName }

func (s *subject) isHeadless() bool { return !s.isExternalName() && s.Spec.ClusterIP == headless }

// isServed reports whether Vicinity's proxy serves the Service.
func (s *subject) isServed() bool {
	return !s.isExternalName() && !s.isHeadless() && policy.IsHandledBy(s.Metadata.Labels, s.proxyName)
}

// isServedByDNS reports whether Vicinity's proxies answer DNS for the Service by its topology keys.
func (s *subject) isServedByDNS() bool {
	return s.dnsByTopology && s.hasKeys && s.isHeadless() && policy.IsHandledBy(s.Metadata.Labels, s.proxyName)
}

// distribution is spec.trafficDistribution.
func (s *subject) distribution() (value string, present bool) {
	if s.Spec.TrafficDistribution == nil {
		return "", false
	}
	return *s.Spec.TrafficDistribution, true
}
