package convert

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// readSourceRanges reads who may dial the load balancer's addresses: ranges of which no two overlap or adjoin, so
// that each address is in the tables once. Validation allows white space around a range.
//
// A family whose ranges amount to all its addresses has none, and is open to all clients. kube-proxy says so of a
// single /0; two halves of the Internet mean the same.
//
// What is not a range refuses the Service as a whole, as the API server does: a list that is one range shorter keeps
// clients out, and an empty one lets all clients in. Neither is what its owner asked for. For the same reason ranges
// are not passed over on a Service of another type, whose status may still name a load balancer's address.
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
		prefix, refused := readPrefix(path.Index(i), strings.TrimSpace(text))
		if len(refused) > 0 {
			errs = append(errs, refused...)
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
