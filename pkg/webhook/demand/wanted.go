package demand

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// isMeasured reports whether what is asked of a Service is to be published: by its owner's word, or by default.
func (o *Options) isMeasured(service *corev1.Service) bool {
	clients, namesClients := service.Annotations[policy.ClientsAnnotation]
	return endsInMeasured(clients) || o.MeasuredByDefault && !namesClients
}

// assumes reports whether bounds are planned for a demand that is known here, with which measurements are compared. Which
// endpoints the clients have that a Service names is not known.
func (o *Options) assumes(service *corev1.Service) bool {
	return service.Annotations[policy.ClientsAnnotation] == "" && !o.isMeasured(service)
}

// endsInMeasured reports whether the last of a list of clients is the word.
func endsInMeasured(clients string) bool {
	return strings.TrimSpace(clients[strings.LastIndex(clients, ",")+1:]) == "measured"
}

// namesNodes reports whether a Service prefers endpoints on the client's node, so that it matters which nodes are busy. Proxies
// count of no Service without a bound; here it is not known which bound is the cluster's.
func namesNodes(service *corev1.Service) bool {
	words := policy.Words{Namespace: service.Namespace, Annotations: service.Annotations, DefaultMaxLoad: policy.UsualMaxLoad}
	if service.Spec.TrafficDistribution != nil {
		words.TrafficDistribution = *service.Spec.TrafficDistribution
	}
	topology, _ := policy.Parse(words)
	return slices.Contains(topology.Keys, policy.Hostname)
}
