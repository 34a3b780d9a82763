package convert

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ServiceCIDR returns the ranges of a networking.k8s.io/v1 ServiceCIDR: one or two, each of a different family. It
// rejects values of its name and of spec.cidrs that the API server would reject, and a range of all addresses.
//
// As in kube-proxy, the ranges apply as long as the object exists, regardless of whether it is ready or about to be
// deleted: the API server keeps it until the last of its ClusterIPs is free.
func ServiceCIDR(object *networkingv1.ServiceCIDR) ([]netip.Prefix, field.ErrorList) {
	metadata, path := field.NewPath("metadata"), field.NewPath("spec", "cidrs")
	errs := checkName(metadata.Child("name"), object.Name, validation.IsDNS1123Subdomain)
	errs = append(errs, checkClusterScoped(metadata, object.Namespace)...)
	errs = append(errs, checkLength(path, len(object.Spec.CIDRs), len(model.Families))...)
	if len(object.Spec.CIDRs) == 0 {
		errs = append(errs, field.Required(path, "at least one CIDR required"))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	var prefixes []netip.Prefix
	for i, text := range object.Spec.CIDRs {
		prefix, rejected := readServiceCIDR(path.Index(i), text)
		prefixes, errs = append(prefixes, prefix), append(errs, rejected...)
	}
	if len(errs) == 0 && len(firstOfEachFamily(prefixes, model.FamilyOfPrefix)) < len(prefixes) {
		errs = append(errs, field.Invalid(path, object.Spec.CIDRs, "may specify no more than one CIDR for each IP family"))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return prefixes, nil
}

// readServiceCIDR reads a range in the canonical form that the API server has always required of this kind. The API
// server also accepts a range of all addresses. We reject it: packets to addresses in a range that are not ClusterIPs
// are dropped, which would isolate the node.
func readServiceCIDR(path *field.Path, text string) (netip.Prefix, field.ErrorList) {
	if errs := validation.IsValidCIDR(path, text); len(errs) > 0 {
		return netip.Prefix{}, errs
	}
	prefix, errs := readPrefix(path, text)
	if len(errs) == 0 && prefix.Bits() == 0 {
		errs = field.ErrorList{field.Invalid(path, text, "may not be all addresses: those that are not ClusterIPs would be dropped")}
	}
	return prefix, errs
}
