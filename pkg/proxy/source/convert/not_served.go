package convert

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// NotServedReason returns why a Service is not this proxy's to serve, and what that means to its clients. It is empty
// if the Service is ours, valid or not.
func NotServedReason(service *corev1.Service, view View) string {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "it is of type ExternalName: DNS sends its clients to " +
			cmp.Or(sanitize.Truncate(service.Spec.ExternalName), "another name") + ", without a proxy"
	case !policy.IsHandledBy(service.Labels, view.ServiceProxyName):
		other, isLabelled := service.Labels[policy.ServiceProxyNameLabel]
		if !isLabelled {
			return fmt.Sprintf("it belongs to another proxy: it lacks the label %s: %s, and Services without it are served by kube-proxy or "+
				"its replacement", policy.ServiceProxyNameLabel, view.ServiceProxyName)
		}
		return fmt.Sprintf("it belongs to another proxy: its label %s is %q, and how that proxy serves it is unknown here",
			policy.ServiceProxyNameLabel, sanitize.Truncate(other))
	case isHeadlessService(service):
		which := "without topology keys"
		if service.Annotations[policy.TopologyKeysAnnotation] != "" {
			which = "and its topology keys are ignored"
		}
		return "it is headless, " + which + ": DNS returns all ready endpoints, and clients connect to them without a proxy"
	case !hasClusterIP(service):
		return "it has no ClusterIP yet, so no client can connect to it"
	}
	return ""
}
