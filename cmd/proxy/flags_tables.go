package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// tableFlags say what the tables are made from: the state, who the clients are, and where node ports are served. 'explain' does
// without the last, because no endpoint is chosen by it. Their names and defaults are kube-proxy's.
type tableFlags struct {
	stateFlags
	clientFlags
	nodePortAddresses []string

	// nodePorts is --nodeport-addresses after Validate.
	nodePorts model.NodePortAddresses
}

func (f *tableFlags) register(flags *pflag.FlagSet) {
	f.stateFlags.register(flags)
	f.clientFlags.register(flags)
	flags.StringSliceVar(&f.nodePortAddresses, "nodeport-addresses", []string{primary},
		"`ADDRESSES` of this node that serve node ports: primary for those that the Node object names, or CIDRs, comma-separated. "+
			"A family without a CIDR serves them on all addresses, so name both; 0.0.0.0/0,::/0 is all addresses. Loopback never serves any")
}

// Validate checks all flags, reads those that have an inner form, and tells every mistake at once.
func (f *tableFlags) Validate() error {
	var nodePorts error
	f.nodePorts, nodePorts = parseNodePortAddresses(f.nodePortAddresses)
	return errors.Join(f.stateFlags.Validate(), f.clientFlags.Validate(), nodePorts)
}

// config is how the tables of some families are to be made.
func (f *tableFlags) config(families []model.Family) ruleset.Config {
	return ruleset.Config{
		Families:      families,
		LocalTraffic:  f.localTraffic.config(),
		MasqueradeAll: f.masqueradeAll,
		NodePorts:     f.nodePorts,
	}
}

// parseCIDR reads one entry of a flag's list, and drops the bits behind the prefix.
func parseCIDR(flag, text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("--%s: %q is not a CIDR such as 10.244.0.0/16", flag, text)
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("--%s: %s is an IPv4 range in IPv6 form; write it as IPv4", flag, prefix)
	}
	return prefix.Masked(), nil
}
