package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// primary is the entry of --nodeport-addresses that stands for the addresses that the Node object names.
const primary = "primary"

const nodePortFlag = "nodeport-addresses"

// parseNodePortAddresses reads where node ports are served. Nothing at all means primary, as in kube-proxy's nftables mode.
func parseNodePortAddresses(entries []string) (model.NodePortAddresses, error) {
	if len(entries) == 0 || len(entries) == 1 && strings.TrimSpace(entries[0]) == primary {
		return model.NodePortAddresses{Primary: true}, nil
	}
	var prefixes []netip.Prefix
	var errs []error
	for _, entry := range entries {
		prefix, err := parseNodePortCIDR(strings.TrimSpace(entry))
		prefixes, errs = append(prefixes, prefix), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return model.NodePortAddresses{}, err
	}
	return model.NodePortAddresses{Prefixes: prefixes}, nil
}

// parseNodePortCIDR reads one range, and knows what people write instead of one.
func parseNodePortCIDR(entry string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(entry); err == nil {
		addr = addr.Unmap()
		return netip.Prefix{}, fmt.Errorf("--%s: %s is an address and not a CIDR; write %s/%d", nodePortFlag, entry, addr, addr.BitLen())
	}
	switch strings.ToLower(entry) {
	case "all":
		return netip.Prefix{}, fmt.Errorf("--%s: %q is not a CIDR; all addresses are 0.0.0.0/0,::/0", nodePortFlag, entry)
	case primary:
		return netip.Prefix{}, fmt.Errorf("--%s: %q is not a CIDR; write primary in lower case and alone, or CIDRs alone", nodePortFlag, entry)
	}
	return parseCIDR(nodePortFlag, entry)
}

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
