package convert

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// headlessService reads a headless Service. It is ours only if its author has set topology keys: peers find each other
// by such names, and a field that never had an effect there must not start to hide endpoints.
func headlessService(service *corev1.Service, view View) (*model.Service, field.ErrorList) {
	if !policy.IsHandledBy(service.Labels, view.ServiceProxyName) || service.Annotations[policy.TopologyKeysAnnotation] == "" {
		return nil, nil
	}
	metadata := field.NewPath("metadata")
	errs := checkNamespace(metadata.Child("namespace"), service.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), service.Name, validation.IsDNS1123Label)...)
	var ports []model.ServicePort
	if len(service.Spec.Ports) > 0 { // a headless Service may have no ports
		var rejected field.ErrorList
		ports, rejected = readServicePorts(field.NewPath("spec", "ports"), &service.Spec)
		errs = append(errs, rejected...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	topology, ignored := TopologyOf(service, view)
	if len(topology.Keys) == 0 || missingKeysReason(ignored) != "" {
		return nil, nil
	}
	var skipped skippedParts
	converted := &model.Service{
		Name:       model.ObjectName{Namespace: service.Namespace, Name: service.Name},
		Created:    service.CreationTimestamp.UTC(),
		IsHeadless: true,
		Ports:      ports,
		Topology:   topology,
	}
	trimToLimit(converted, &skipped)
	converted.Findings = append(annotationFindings(converted.Name, ignored), skipped.findings(ServiceKind, converted.Name)...)
	return converted, nil
}

// isHeadlessService reports whether clients find a Service's endpoints only by DNS.
func isHeadlessService(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.ClusterIP == corev1.ClusterIPNone
}
