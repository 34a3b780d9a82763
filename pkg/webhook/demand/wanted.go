package demand

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// settings are the topology settings of Services, each read once in a round.
type settings struct {
	read  func(*corev1.Service) policy.Topology
	known map[*corev1.Service]policy.Topology
}

func (o *Options) settings() *settings {
	return &settings{read: o.topologyOf, known: map[*corev1.Service]policy.Topology{}}
}

func (s *settings) of(service *corev1.Service) policy.Topology {
	topology, isKnown := s.known[service]
	if !isKnown {
		topology = s.read(service)
		s.known[service] = topology
	}
	return topology
}

// isMeasured reports whether the demand on a Service should be published: by its owner's word, or by default.
func (s *settings) isMeasured(service *corev1.Service) bool { return s.of(service).Measured }

// assumes reports whether bounds are planned for a demand that is known here, so that measurements can be compared with
// it. The endpoints of clients that a Service names are not known here.
func (s *settings) assumes(service *corev1.Service) bool {
	return service.Annotations[policy.ClientsAnnotation] == "" && !s.isMeasured(service)
}

// topologyOf returns a Service's topology settings. Proxies do not count for Services without a bound; the cluster's
// default bound is unknown here, so we always assume one.
func (o *Options) topologyOf(service *corev1.Service) policy.Topology {
	words := policy.Words{
		Namespace: service.Namespace, Annotations: service.Annotations,
		DefaultMaxLoad: policy.UsualMaxLoad, DefaultMeasured: o.MeasuredByDefault,
	}
	if service.Spec.TrafficDistribution != nil {
		words.TrafficDistribution = *service.Spec.TrafficDistribution
	}
	topology, _ := policy.Parse(words)
	return topology
}
