package demand

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// settings caches the topology settings of Services. Each Service is parsed once a round.
type settings struct {
	parse func(*corev1.Service) policy.Topology
	cache map[*corev1.Service]policy.Topology
}

func (o *Options) settings() *settings {
	return &settings{parse: o.topologyOf, cache: map[*corev1.Service]policy.Topology{}}
}

func (s *settings) topology(service *corev1.Service) policy.Topology {
	topology, isKnown := s.cache[service]
	if !isKnown {
		topology = s.parse(service)
		s.cache[service] = topology
	}
	return topology
}

// publishesDemand reports whether the demand on a Service should be published, by its annotation or by default.
func (s *settings) publishesDemand(service *corev1.Service) bool { return s.topology(service).Measured }

// isComparable reports whether load bounds are planned for a demand that is known here, so that measurements can be
// compared with it. The endpoints of client Services that an annotation names are not known here.
func (s *settings) isComparable(service *corev1.Service) bool {
	return service.Annotations[policy.ClientsAnnotation] == "" && !s.publishesDemand(service)
}

// topologyOf returns a Service's topology settings. Proxies do not count connections to Services without a load bound.
// The cluster's default bound is unknown here, so one is always assumed.
func (o *Options) topologyOf(service *corev1.Service) policy.Topology {
	input := policy.Input{
		Namespace: service.Namespace, Annotations: service.Annotations,
		DefaultMaxLoad: policy.DefaultLoadBound, DefaultMeasured: o.MeasuredByDefault,
	}
	if service.Spec.TrafficDistribution != nil {
		input.TrafficDistribution = *service.Spec.TrafficDistribution
	}
	topology, _ := policy.Parse(input)
	return topology
}
