package convert

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxAffinityTimeout is a day, the longest timeout in seconds that the API accepts.
const maxAffinityTimeout = 86400

// readAffinity returns the timeout of session affinity; zero without affinity.
func readAffinity(path *field.Path, spec *corev1.ServiceSpec) (time.Duration, field.ErrorList) {
	config := spec.SessionAffinityConfig
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		if config != nil {
			reason := "must not be set when session affinity is None"
			return 0, field.ErrorList{field.Forbidden(path.Child("sessionAffinityConfig"), reason)}
		}
		return 0, nil
	case corev1.ServiceAffinityClientIP:
	default:
		supported := []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}
		return 0, field.ErrorList{field.NotSupported(path.Child("sessionAffinity"), spec.SessionAffinity, supported)}
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		seconds = *config.ClientIP.TimeoutSeconds
	}
	if seconds < 1 || seconds > maxAffinityTimeout {
		path := path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds")
		return 0, field.ErrorList{field.Invalid(path, seconds, "must be between 1 and 86400, inclusive")}
	}
	return time.Duration(seconds) * time.Second, nil
}

// readInternalPolicy reports whether traffic to the ClusterIP stays on the node. Without a policy it does not.
func readInternalPolicy(path *field.Path, trafficPolicy *corev1.ServiceInternalTrafficPolicy) (bool, field.ErrorList) {
	if trafficPolicy == nil {
		return false, nil
	}
	switch *trafficPolicy {
	case corev1.ServiceInternalTrafficPolicyCluster:
		return false, nil
	case corev1.ServiceInternalTrafficPolicyLocal:
		return true, nil
	}
	return false, field.ErrorList{field.NotSupported(path, *trafficPolicy, []corev1.ServiceInternalTrafficPolicy{
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal})}
}

// readExternalPolicy reports whether traffic from outside stays on the node. The policy has no meaning on a Service
// whose type makes it unreachable from outside; the API server rejects it there.
func readExternalPolicy(path *field.Path, spec *corev1.ServiceSpec) (bool, field.ErrorList) {
	trafficPolicy := spec.ExternalTrafficPolicy
	if trafficPolicy == "" {
		return false, nil
	}
	if !externallyAccessible(spec) {
		return false, field.ErrorList{field.Invalid(path, trafficPolicy, "may only be set for externally-accessible services")}
	}
	switch trafficPolicy {
	case corev1.ServiceExternalTrafficPolicyCluster:
		return false, nil
	case corev1.ServiceExternalTrafficPolicyLocal:
		return true, nil
	}
	return false, field.ErrorList{field.NotSupported(path, trafficPolicy, []corev1.ServiceExternalTrafficPolicy{
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal})}
}

// externallyAccessible reports whether the Service can be reached from outside.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort || len(spec.ExternalIPs) > 0
}

// readHealthCheckNodePort reads the port of the health checks of a load balancer; zero means none. The API server
// removes the port when a Service no longer uses it. In a manifest it may be left over, which is no reason to stop
// serving the Service.
func readHealthCheckNodePort(path *field.Path, spec *corev1.ServiceSpec, skipped *skippedParts) uint16 {
	if spec.HealthCheckNodePort == 0 {
		return 0
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer || spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		reason := "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
		skipped.add(field.ErrorList{field.Invalid(path, spec.HealthCheckNodePort, reason)})
		return 0
	}
	port, rejected := readPort(path, spec.HealthCheckNodePort)
	skipped.add(rejected)
	if len(rejected) > 0 {
		return 0
	}
	return port
}
