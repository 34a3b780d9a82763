package demand

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// publishesDemand reports whether the demand on a Service should be published, by its annotation or by default.
func (o *Options) publishesDemand(service *corev1.Service) bool {
	return o.topologyOf(service).Measured
}

// isComparable reports whether load bounds are planned for a demand that is known here, so that measurements can be
// compared with it. The endpoints of client Services that an annotation names are not known here.
func (o *Options) isComparable(service *corev1.Service) bool {
	return service.Annotations[policy.ClientsAnnotation] == "" && !o.publishesDemand(service)
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
