package main

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

const nodePortFlag = "nodeport-addresses"

// openFamilies returns those of the families in which a list of CIDRs narrows nothing, because it has none of the family: node
// ports are served on all addresses there, which hardly anybody means who gave a CIDR of the other family.
func openFamilies(nodePorts model.NodePortAddresses, families []model.Family) []model.Family {
	if len(nodePorts.Prefixes) == 0 {
		return nil
	}
	var open []model.Family
	for _, family := range families {
		if !anyOf(family, nodePorts.Prefixes) {
			open = append(open, family)
		}
	}
	return open
}

// anyOf reports whether one of the prefixes is of a family.
func anyOf(family model.Family, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return model.FamilyOfPrefix(prefix) == family })
}
