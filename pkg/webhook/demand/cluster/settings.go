package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Settings are the settings of Services, which their annotations or the defaults set.
type Settings struct {
	// MeasuredByDefault is set if demand is also published for Services with a load bound that name no clients.
	MeasuredByDefault bool
}

// PublishesDemand reports whether the demand on a Service should be published.
func (s Settings) PublishesDemand(service *corev1.Service) bool { return s.Topology(service).Measured }

// IsComparable reports whether load bounds are planned for a demand that is known here, so that measurements can be
// compared with it. The endpoints of client Services that an annotation names are not known here.
func (s Settings) IsComparable(service *corev1.Service) bool {
	return service.Annotations[policy.ClientsAnnotation] == "" && !s.PublishesDemand(service)
}

// Topology returns a Service's topology settings. Proxies do not count connections to Services without a load bound.
// The cluster's default bound is unknown here, so one is always assumed.
func (s Settings) Topology(service *corev1.Service) policy.Topology {
	input := policy.Input{
		Namespace: service.Namespace, Annotations: service.Annotations,
		DefaultMaxLoad: policy.DefaultLoadBound, DefaultMeasured: s.MeasuredByDefault,
	}
	if service.Spec.TrafficDistribution != nil {
		input.TrafficDistribution = *service.Spec.TrafficDistribution
	}
	topology, _ := policy.Parse(input)
	return topology
}
