package convert

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Limits of a single Service on every node. All Services wait for the largest change of one of them, so no user may
// write a Service that takes long to process. The excess is skipped and reported.
const (
	// maxFrontends bounds the ports times the addresses: ClusterIPs, node ports, load balancers' and external IPs. It is
	// four times the number of a Service with 1,000 ports and two families.
	maxFrontends = 8192
	// maxRanges bounds the source ranges of a family, after adjoining ones are merged.
	maxRanges = 8192
)

// trimToLimit skips the parts of a Service beyond maxFrontends: first external IPs, then load balancers' addresses,
// then ports.
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
	remaining := maxFrontends/max(1, len(service.Ports)) - perPort
	service.LoadBalancerIPs = withinLimit(
		field.NewPath("status", "loadBalancer", "ingress"), service.LoadBalancerIPs, remaining, skipped)
	service.ExternalIPs = withinLimit(
		field.NewPath("spec", "externalIPs"), service.ExternalIPs, remaining-len(service.LoadBalancerIPs), skipped)
}

func withinLimit[T any](path *field.Path, values []T, limit int, skipped *skippedParts) []T {
	if len(values) <= limit {
		return values
	}
	skipped.add(field.ErrorList{field.TooMany(path, len(values), limit)})
	return values[:limit:limit]
}

// limitRanges skips ranges beyond maxRanges. At least one range of a family remains, or the family would be open to
// all.
func limitRanges(path *field.Path, ranges []netip.Prefix, skipped *skippedParts) []netip.Prefix {
	if len(ranges) <= maxRanges {
		return ranges
	}
	var kept []netip.Prefix
	for _, family := range model.Families {
		var familyRanges []netip.Prefix
		for _, prefix := range ranges {
			if model.FamilyOfPrefix(prefix) == family {
				familyRanges = append(familyRanges, prefix)
			}
		}
		kept = append(kept, withinLimit(path, familyRanges, maxRanges, skipped)...)
	}
	return kept
}
