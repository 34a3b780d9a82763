package convert

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// readSourceRanges reads the ranges of clients that may connect to the load balancer's addresses. The returned ranges
// neither overlap nor adjoin, so that each address is in the tables once. Validation allows white space around a range.
//
// If a family's ranges cover all its addresses, no range is returned, and the family is open to all clients. kube-proxy
// does so for a single /0; two ranges of length /1 mean the same.
//
// An invalid range makes the whole Service invalid, as in the API server: a list without it would reject clients, and
// an empty one would admit all clients. The author wanted neither. For the same reason ranges are not ignored on a
// Service of another type, whose status may still contain a load balancer's address.
func readSourceRanges(path *field.Path, spec *corev1.ServiceSpec) ([]netip.Prefix, field.ErrorList) {
	if len(spec.LoadBalancerSourceRanges) == 0 {
		return nil, nil
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, field.ErrorList{field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'")}
	}
	var builder netipx.IPSetBuilder
	var errs field.ErrorList
	for i, text := range spec.LoadBalancerSourceRanges {
		prefix, rejected := readPrefix(path.Index(i), strings.TrimSpace(text))
		if len(rejected) > 0 {
			errs = append(errs, rejected...)
			continue
		}
		builder.AddPrefix(prefix)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	merged, err := builder.IPSet()
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	return slices.DeleteFunc(merged.Prefixes(), func(prefix netip.Prefix) bool { return prefix.Bits() == 0 }), nil
}
