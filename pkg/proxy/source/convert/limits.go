package convert

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// What one Service can ask of every node. All Services wait for the largest change of one of them, so no user may write
// a Service that takes long; what is beyond the limits is left out, and reported.
const (
	// maxFrontends are its ports times its addresses: ClusterIPs, node ports, load balancers' and external IPs. It is four
	// times what a Service with 1,000 ports and two families has.
	maxFrontends = 8192
	// maxRanges are its source ranges in a family, after adjoining ones are merged.
	maxRanges = 8192
)

// trimToLimit leaves out of a Service what goes beyond maxFrontends: first external IPs, then load balancers' addresses, then
// ports.
func trimToLimit(service *model.Service, skipped *skippedParts) {
	perPort := len(service.ClusterIPs)
	for _, port := range service.Ports {
		if port.NodePort != 0 {
			perPort += len(service.ClusterIPs)
			break
		}
	}
	ports := maxFrontends / max(1, perPort)
	service.Ports = withinLimit(field.NewPath("spec", "ports"), service.Ports, ports, skipped)
	room := maxFrontends/max(1, len(service.Ports)) - perPort
	service.LoadBalancerIPs = withinLimit(
		field.NewPath("status", "loadBalancer", "ingress"), service.LoadBalancerIPs, room, skipped)
	service.ExternalIPs = withinLimit(
		field.NewPath("spec", "externalIPs"), service.ExternalIPs, room-len(service.LoadBalancerIPs), skipped)
}

func withinLimit[T any](path *field.Path, values []T, limit int, skipped *skippedParts) []T {
	if len(values) <= limit {
		return values
	}
	skipped.add(field.ErrorList{field.TooMany(path, len(values), limit)})
	return values[:limit:limit]
}

// limitRanges leaves ranges out. At least one range of a family stays, or the family would be open to everybody.
func limitRanges(path *field.Path, ranges []netip.Prefix, skipped *skippedParts) []netip.Prefix {
	if len(ranges) <= maxRanges {
		return ranges
	}
	var kept []netip.Prefix
	for _, family := range model.Families {
		var own []netip.Prefix
		for _, prefix := range ranges {
			if model.FamilyOfPrefix(prefix) == family {
				own = append(own, prefix)
			}
		}
		kept = append(kept, withinLimit(path, own, maxRanges, skipped)...)
	}
	return kept
}
