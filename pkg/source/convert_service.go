package source

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// serviceProxyNameLabel hands a Service to another proxy, whatever its value (KEP-2447).
const serviceProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Service turns a v1 Service into a value of the model. It returns nil and no error for a Service that is not ours to serve:
// one without a ClusterIP (headless, ExternalName, not allocated yet), or one that is labelled for another proxy.
//
// It refuses what the API server would refuse in the fields that the proxy reads.
func Service(service *corev1.Service) (*model.Service, field.ErrorList) {
	if !isProxied(service) {
		return nil, nil
	}
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := checkNamespace(metadata.Child("namespace"), service.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), service.Name, validation.IsDNS1123Label)...)
	errs = append(errs, checkType(spec.Child("type"), service.Spec.Type)...)

	clusterIPs, refused := readClusterIPs(spec, &service.Spec)
	errs = append(errs, refused...)
	ports, refused := readServicePorts(spec.Child("ports"), &service.Spec)
	errs = append(errs, refused...)
	affinity, refused := readAffinity(spec, &service.Spec)
	errs = append(errs, refused...)
	internalLocal, refused := readInternalPolicy(spec.Child("internalTrafficPolicy"), service.Spec.InternalTrafficPolicy)
	errs = append(errs, refused...)
	externalLocal, refused := readExternalPolicy(spec.Child("externalTrafficPolicy"), &service.Spec)
	errs = append(errs, refused...)
	outside, refused := readOutsideAddresses(service)
	errs = append(errs, refused...)
	if len(errs) > 0 {
		return nil, errs
	}
	return &model.Service{
		Name:                 model.ObjectName{Namespace: service.Namespace, Name: service.Name},
		Created:              service.CreationTimestamp.UTC(),
		ClusterIPs:           clusterIPs,
		Ports:                ports,
		InternalTrafficLocal: internalLocal,
		ExternalTrafficLocal: externalLocal,
		ExternalFamilies:     externalFamilies(clusterIPs, ports, outside),
		AffinityTimeout:      affinity,
		Topology:             policy.Parse(service.Annotations, externalLocal),
	}, nil
}

// isProxied reports whether this proxy serves the Service.
func isProxied(service *corev1.Service) bool {
	if _, other := service.Labels[serviceProxyNameLabel]; other {
		return false
	}
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

// readClusterIPs reads spec.clusterIPs, or spec.clusterIP where an older API server or a person wrote only that.
func readClusterIPs(spec *field.Path, service *corev1.ServiceSpec) ([]netip.Addr, field.ErrorList) {
	path := spec.Child("clusterIPs")
	texts, pathOf := service.ClusterIPs, path.Index
	switch {
	case len(texts) == 0:
		texts, pathOf = []string{service.ClusterIP}, func(int) *field.Path { return spec.Child("clusterIP") }
	case service.ClusterIP == "":
		return nil, field.ErrorList{field.Invalid(path, texts, "must be empty when `clusterIP` is not specified")}
	case texts[0] != service.ClusterIP:
		return nil, field.ErrorList{field.Invalid(path.Index(0), texts[0], "must be the value of `clusterIP`")}
	case len(texts) > len(model.Families):
		return nil, field.ErrorList{field.TooMany(path, len(texts), len(model.Families))}
	}
	var addrs []netip.Addr
	var errs field.ErrorList
	for i, text := range texts {
		addr, refused := readUnicast(pathOf(i), text)
		if len(refused) == 0 {
			refused = checkClusterIPFamily(spec, pathOf(i), service.IPFamilies, addrs, addr)
		}
		errs = append(errs, refused...)
		addrs = append(addrs, addr)
	}
	return addrs, errs
}

// checkClusterIPFamily refuses a ClusterIP after the earlier ones that shares a family with one of them, or is not of the family
// that spec.ipFamilies names at its place.
func checkClusterIPFamily(
	spec, path *field.Path, names []corev1.IPFamily, earlier []netip.Addr, addr netip.Addr,
) field.ErrorList {
	place := len(earlier)
	for _, other := range earlier {
		if other.IsValid() && model.FamilyOf(other) == model.FamilyOf(addr) {
			return field.ErrorList{field.Invalid(path, addr.String(), "may specify no more than one IP for each IP family")}
		}
	}
	if place >= len(names) {
		return nil
	}
	family, ok := families[names[place]]
	if !ok {
		supported := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		return field.ErrorList{field.NotSupported(spec.Child("ipFamilies").Index(place), names[place], supported)}
	}
	return wrongFamily(path, addr, family, fmt.Sprintf("`ipFamilies[%d]`", place))
}

// readOutsideAddresses reads the addresses that are not the cluster's own: external IPs and those of a load balancer.
//
// A load balancer without an IP is reached by a name, which is none of our business; one in mode Proxy wants its packets to
// come to it from everywhere, so its address must not be served here (KEP-1860).
func readOutsideAddresses(service *corev1.Service) ([]netip.Addr, field.ErrorList) {
	var addrs []netip.Addr
	var errs field.ErrorList
	path := field.NewPath("spec", "externalIPs")
	for i, text := range service.Spec.ExternalIPs {
		addr, refused := readUnicast(path.Index(i), text)
		addrs, errs = append(addrs, addr), append(errs, refused...)
	}
	path = field.NewPath("status", "loadBalancer", "ingress")
	for i, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IP == "" || ingress.IPMode != nil && *ingress.IPMode == corev1.LoadBalancerIPModeProxy {
			continue
		}
		addr, refused := readAddress(path.Index(i).Child("ip"), ingress.IP)
		addrs, errs = append(addrs, addr), append(errs, refused...)
	}
	return addrs, errs
}

// externalFamilies returns the families in which the Service is dialled from outside. A family without a ClusterIP has no
// service ports at all, so its other addresses count for nothing.
func externalFamilies(clusterIPs []netip.Addr, ports []model.ServicePort, outside []netip.Addr) []model.Family {
	hasNodePort := slices.ContainsFunc(ports, func(port model.ServicePort) bool { return port.NodePort != 0 })
	var found []model.Family
	for _, family := range model.Families {
		ofFamily := func(addr netip.Addr) bool { return model.FamilyOf(addr) == family }
		if slices.ContainsFunc(clusterIPs, ofFamily) && (hasNodePort || slices.ContainsFunc(outside, ofFamily)) {
			found = append(found, family)
		}
	}
	return found
}
