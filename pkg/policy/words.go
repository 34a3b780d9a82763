package policy

// Domain begins every label and annotation of ours.
const Domain = "vicinity.dev/"

// AdmissionLabel on a Service or Namespace, with the value AdmissionDisabled, says that its topology settings are neither judged nor
// given defaults. Other values mean nothing.
const (
	AdmissionLabel    = Domain + "admission"
	AdmissionDisabled = "disabled"
)

// Annotations of a Namespace: the topology settings of its Services that have none. A Namespace has one of them at most.
const (
	DefaultTopologyModeAnnotation        = Domain + "default-topology-mode"
	DefaultTopologyKeysAnnotation        = Domain + "default-topology-keys"
	DefaultTrafficDistributionAnnotation = Domain + "default-traffic-distribution"
)

// None is the value of a Namespace's default that says: no default here, whatever the cluster's is.
const None = "None"

// Values of spec.trafficDistribution. PreferClose is what PreferSameZone was called first, and means the same.
const (
	PreferSameZone = "PreferSameZone"
	PreferSameNode = "PreferSameNode"
	PreferClose    = "PreferClose"
)

// ServiceProxyNameLabel hands a Service to the proxy of that name (KEP-2447).
const ServiceProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// IsHandledBy reports whether a Service with these labels is one of the proxy with that name. The proxy without a name, which is
// "", has those without the label; a Service whose label is empty has no proxy.
func IsHandledBy(labels map[string]string, proxyName string) bool {
	named, labelled := labels[ServiceProxyNameLabel]
	return named == proxyName && labelled == (proxyName != "")
}
