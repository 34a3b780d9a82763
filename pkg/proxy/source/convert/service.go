package convert

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Service converts a v1 Service. It returns nil and no error for a Service that is not ours to serve: one without a
// ClusterIP (ExternalName, not allocated yet, headless unless View.WithHeadless is set), or one of another proxy.
//
// It rejects values that the API server would reject in the fields that the proxy reads. An invalid address that is
// only one of several ways to reach the Service is skipped with a finding, and the other ways are still served.
func Service(service *corev1.Service, view View) (*model.Service, field.ErrorList) {
	if view.WithHeadless && isHeadlessService(service) {
		return headlessService(service, view)
	}
	if !isProxied(service, view.ServiceProxyName) {
		return nil, nil
	}
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := checkNamespace(metadata.Child("namespace"), service.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), service.Name, validation.IsDNS1123Label)...)
	errs = append(errs, checkType(spec.Child("type"), service.Spec.Type)...)

	clusterIPs, rejected := readClusterIPs(spec, &service.Spec)
	errs = append(errs, rejected...)
	ports, rejected := readServicePorts(spec.Child("ports"), &service.Spec)
	errs = append(errs, rejected...)
	affinity, rejected := readAffinity(spec, &service.Spec)
	errs = append(errs, rejected...)
	internalLocal, rejected := readInternalPolicy(spec.Child("internalTrafficPolicy"), service.Spec.InternalTrafficPolicy)
	errs = append(errs, rejected...)
	externalLocal, rejected := readExternalPolicy(spec.Child("externalTrafficPolicy"), &service.Spec)
	errs = append(errs, rejected...)
	ranges, rejected := readSourceRanges(spec.Child("loadBalancerSourceRanges"), &service.Spec)
	errs = append(errs, rejected...)
	if len(errs) > 0 {
		return nil, errs
	}
	topology, ignored := TopologyOf(service, view)
	var skipped skippedParts
	converted := &model.Service{
		Name:                 model.ObjectName{Namespace: service.Namespace, Name: service.Name},
		Created:              service.CreationTimestamp.UTC(),
		ClusterIPs:           clusterIPs,
		Ports:                ports,
		ExternalIPs:          readExternalIPs(spec.Child("externalIPs"), service.Spec.ExternalIPs, clusterIPs, view, &skipped),
		LoadBalancerIPs:      readIngress(service.Status.LoadBalancer.Ingress, clusterIPs, &skipped),
		SourceRanges:         limitRanges(spec.Child("loadBalancerSourceRanges"), ranges, &skipped),
		HealthCheckNodePort:  readHealthCheckNodePort(spec.Child("healthCheckNodePort"), &service.Spec, &skipped),
		InternalTrafficLocal: internalLocal,
		ExternalTrafficLocal: externalLocal,
		AffinityTimeout:      affinity,
		Topology:             topology,
	}
	trimToLimit(converted, &skipped)
	converted.Findings = append(annotationFindings(converted.Name, ignored), skipped.findings(ServiceKind, converted.Name)...)
	return converted, nil
}

// TopologyOf returns the topology settings of a Service, and its annotations that have no effect. The field
// trafficDistribution has no meaning for a headless Service: DNS decides where its clients connect.
func TopologyOf(service *corev1.Service, view View) (policy.Topology, []policy.IgnoredAnnotation) {
	input := policy.Input{
		Namespace: service.Namespace, Annotations: service.Annotations, DefaultMaxLoad: view.DefaultMaxLoad,
		DefaultMeasured: view.DefaultMeasured, IsHeadless: isHeadlessService(service),
	}
	if !input.IsHeadless {
		input.ExternalTrafficLocal = service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		input.TrafficDistribution = ptr.Deref(service.Spec.TrafficDistribution, "")
	}
	return policy.Parse(input)
}

// isProxied reports whether this proxy serves the Service.
func isProxied(service *corev1.Service, proxyName string) bool {
	return policy.IsHandledBy(service.Labels, proxyName) && hasClusterIP(service)
}

// isForOtherProxy reports whether another proxy serves the Service.
func isForOtherProxy(service *corev1.Service, proxyName string) bool {
	return !policy.IsHandledBy(service.Labels, proxyName) && hasClusterIP(service)
}

// hasClusterIP reports whether a Service has a ClusterIP to serve.
func hasClusterIP(service *corev1.Service) bool {
	spec := &service.Spec
	if spec.Type == corev1.ServiceTypeExternalName || spec.ClusterIP == corev1.ClusterIPNone {
		return false
	}
	return spec.ClusterIP != "" || len(spec.ClusterIPs) > 0
}

func checkType(path *field.Path, typ corev1.ServiceType) field.ErrorList {
	switch typ {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, typ, []corev1.ServiceType{corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName})}
}
