package demand

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// isMeasured reports whether the demand on a Service should be published: by its owner's word, or by default.
func (o *Options) isMeasured(service *corev1.Service) bool { return o.topologyOf(service).Measured }

// assumes reports whether bounds are planned for a demand that is known here, so that measurements can be compared with
// it. The endpoints of clients that a Service names are not known here.
func (o *Options) assumes(service *corev1.Service) bool {
	return service.Annotations[policy.ClientsAnnotation] == "" && !o.isMeasured(service)
}

// namesNodes reports whether a Service prefers endpoints on the client's node, so that it matters which nodes are busy.
func (o *Options) namesNodes(service *corev1.Service) bool {
	return slices.Contains(o.topologyOf(service).Keys, policy.Hostname)
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
