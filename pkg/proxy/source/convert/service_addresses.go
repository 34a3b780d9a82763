package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// readClusterIPs reads spec.clusterIPs, or spec.clusterIP if an older API server or a person set only that.
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
		addr, rejected := readUnicast(pathOf(i), text)
		if len(rejected) == 0 {
			rejected = checkClusterIPFamily(spec, pathOf(i), service.IPFamilies, addrs, addr)
		}
		errs = append(errs, rejected...)
		addrs = append(addrs, addr)
	}
	return addrs, errs
}

// checkClusterIPFamily rejects a ClusterIP that shares a family with an earlier one, or is not of the family that
// spec.ipFamilies states at its index.
func checkClusterIPFamily(
	spec, path *field.Path, ipFamilies []corev1.IPFamily, earlier []netip.Addr, addr netip.Addr,
) field.ErrorList {
	index := len(earlier)
	for _, other := range earlier {
		if other.IsValid() && model.FamilyOf(other) == model.FamilyOf(addr) {
			return field.ErrorList{field.Invalid(path, addr.String(), "may specify no more than one IP for each IP family")}
		}
	}
	if index >= len(ipFamilies) {
		return nil
	}
	family, ok := families[ipFamilies[index]]
	if !ok {
		supported := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		return field.ErrorList{field.NotSupported(spec.Child("ipFamilies").Index(index), ipFamilies[index], supported)}
	}
	return checkFamily(path, addr, family, fmt.Sprintf("`ipFamilies[%d]`", index))
}

// readExternalIPs reads spec.externalIPs. An empty one, which old API servers accept, is silently ignored, as in
// kube-proxy.
//
// A user who may write a Service may set any address there, and so capture other users' connections to it
// (CVE-2020-8554). With View.WithoutExternalIPs, each is skipped.
func readExternalIPs(path *field.Path, texts []string, clusterIPs []netip.Addr, view View, skipped *skippedParts) []netip.Addr {
	var addrs []netip.Addr
	for i, text := range texts {
		switch {
		case strings.TrimSpace(text) == "":
		case view.WithoutExternalIPs:
			skipped.add(field.ErrorList{field.Forbidden(path.Index(i), fmt.Sprintf(
				"%q is not served: the feature gate AllowServiceExternalIPs of the proxy is off", text))})
		default:
			addrs = appendServed(addrs, path.Index(i), text, clusterIPs, skipped)
		}
	}
	return addrs
}

// readIngress reads the load balancers' addresses that are served here, regardless of the Service's type, as in
// kube-proxy.
//
// A load balancer without an IP is reached by a name, which does not concern us. One in mode Proxy requires that all
// packets go through it, so its address must not be served here (KEP-1860).
func readIngress(ingress []corev1.LoadBalancerIngress, clusterIPs []netip.Addr, skipped *skippedParts) []netip.Addr {
	var addrs []netip.Addr
	list := field.NewPath("status", "loadBalancer", "ingress")
	for i := range ingress {
		entry, path := &ingress[i], list.Index(i)
		mode := corev1.LoadBalancerIPModeVIP
		if entry.IPMode != nil {
			mode = *entry.IPMode
		}
		switch {
		case entry.IP == "" || mode == corev1.LoadBalancerIPModeProxy:
		case mode == corev1.LoadBalancerIPModeVIP:
			addrs = appendServed(addrs, path.Child("ip"), entry.IP, clusterIPs, skipped)
		default:
			supported := []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}
			skipped.add(field.ErrorList{field.NotSupported(path.Child("ipMode"), mode, supported)})
		}
	}
	return addrs
}

// appendServed adds an address, other than the ClusterIPs, on which a Service is served, once. An invalid address is
// skipped and reported. An address of a family without a ClusterIP is skipped silently, as in kube-proxy: for a
// single-stack Service in a dual-stack cluster, load balancers usually have addresses of both families.
func appendServed(addrs []netip.Addr, path *field.Path, text string, clusterIPs []netip.Addr, skipped *skippedParts) []netip.Addr {
	addr, rejected := readUnicast(path, text)
	skipped.add(rejected)
	isSameFamily := func(clusterIP netip.Addr) bool { return model.FamilyOf(clusterIP) == model.FamilyOf(addr) }
	if len(rejected) > 0 || slices.Contains(addrs, addr) || !slices.ContainsFunc(clusterIPs, isSameFamily) {
		return addrs
	}
	return append(addrs, addr)
}
