package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// The ways to tell pods from everybody else: kube-proxy's detectLocalMode.
const (
	clusterCIDRMode         = "ClusterCIDR"
	nodeCIDRMode            = "NodeCIDR"
	bridgeInterfaceMode     = "BridgeInterface"
	interfaceNamePrefixMode = "InterfaceNamePrefix"
)

// localTrafficFlags say how pods are told from everybody else.
type localTrafficFlags struct {
	mode            string
	clusterCIDR     string
	bridgeInterface string
	interfacePrefix string

	// clusterCIDRs holds the ranges of --cluster-cidr after Validate.
	clusterCIDRs []netip.Prefix
}

func (f *localTrafficFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.mode, "detect-local-mode", clusterCIDRMode,
		"`MODE` of telling pods from everybody else: ClusterCIDR, by the addresses in --cluster-cidr; NodeCIDR, by those in this node's "+
			"podCIDRs; BridgeInterface or InterfaceNamePrefix, by the link that their packets come in by. Connections to a ClusterIP that "+
			"are no pod's are masqueraded, and pods that dial an address whose externalTrafficPolicy is Local reach endpoints on all nodes")
	flags.StringVar(&f.clusterCIDR, "cluster-cidr", "",
		"`CIDR` of the pods, at most one per family, comma-separated, for mode ClusterCIDR alone. A family without one does not recognize "+
			"pods: nothing to a ClusterIP is masqueraded, and pods count as clients outside")
	flags.StringVar(&f.bridgeInterface, "pod-bridge-interface", "",
		"`NAME` of the bridge that pods are attached to, such as cni0, for mode BridgeInterface")
	flags.StringVar(&f.interfacePrefix, "pod-interface-name-prefix", "",
		"`PREFIX` of the names of all links to pods, such as veth or cali, for mode InterfaceNamePrefix")
}

// Validate checks all flags, reads --cluster-cidr, and tells every mistake at once.
//
// --cluster-cidr may stand beside another mode, without effect, because tools that install kube-proxy write it always. A link's
// name may not: whoever gives it means its mode, and would get another one.
func (f *localTrafficFlags) Validate() error {
	var cidrs error
	f.clusterCIDRs, cidrs = parseClusterCIDRs(f.clusterCIDR)
	return errors.Join(
		oneOf("detect-local-mode", f.mode, clusterCIDRMode, nodeCIDRMode, bridgeInterfaceMode, interfaceNamePrefixMode),
		cidrs,
		f.checkLink("pod-bridge-interface", f.bridgeInterface, bridgeInterfaceMode),
		f.checkLink("pod-interface-name-prefix", f.interfacePrefix, interfaceNamePrefixMode),
	)
}

// checkLink checks a flag that names links, and goes with one mode.
func (f *localTrafficFlags) checkLink(flag, name, mode string) error {
	switch {
	case name == "" && f.mode == mode:
		return fmt.Errorf("--detect-local-mode %s needs --%s", mode, flag)
	case name == "":
		return nil
	case f.mode != mode:
		return fmt.Errorf("--%s %q has no effect in mode %s; add --detect-local-mode %s", flag, name, f.mode, mode)
	}
	return linkName(flag, name)
}

// config is the same as the tables are told it. At most one way is set, so flags of other modes have no effect.
func (f *localTrafficFlags) config() ruleset.LocalTraffic {
	switch f.mode {
	case nodeCIDRMode:
		return ruleset.LocalTraffic{PodCIDRs: true}
	case bridgeInterfaceMode:
		return ruleset.LocalTraffic{Interface: f.bridgeInterface}
	case interfaceNamePrefixMode:
		if len(f.interfacePrefix) == maxLinkName { // nothing can follow it, and nft cannot read a wildcard there
			return ruleset.LocalTraffic{Interface: f.interfacePrefix}
		}
		return ruleset.LocalTraffic{InterfacePrefix: f.interfacePrefix}
	}
	return ruleset.LocalTraffic{Prefixes: f.clusterCIDRs}
}

// maxLinkName is the number of bytes in a link's name that the kernel allows (IFNAMSIZ without its zero).
const maxLinkName = 15

// linkName accepts what the kernel accepts as a link's name, or as its beginning (dev_valid_name), unless nft cannot write it: a
// quote ends the name there, * is the wildcard behind a prefix, and a backslash would quote that.
func linkName(flag, name string) error {
	wrong := func(char rune) bool {
		return unicode.IsSpace(char) || unicode.IsControl(char) || strings.ContainsRune(`/:"*\`, char)
	}
	switch at := strings.IndexFunc(name, wrong); {
	case len(name) > maxLinkName:
		return fmt.Errorf("--%s %q has %d bytes; the name of a link has at most %d", flag, name, len(name), maxLinkName)
	case at >= 0:
		return fmt.Errorf("--%s %q: the name of a link cannot contain %q; give one name, or beginning of names, without wildcard",
			flag, name, []rune(name[at:])[0])
	case name == "." || name == "..":
		return fmt.Errorf("--%s %q: no link can have that name", flag, name)
	}
	return nil
}

// parseClusterCIDRs reads ranges of pod addresses, at most one of each family, and drops the bits behind each prefix.
func parseClusterCIDRs(list string) ([]netip.Prefix, error) {
	if list == "" {
		return nil, nil
	}
	var prefixes []netip.Prefix
	for text := range strings.SplitSeq(list, ",") {
		prefix, err := parseCIDR("cluster-cidr", text)
		if err != nil {
			return nil, err
		}
		family := model.FamilyOfPrefix(prefix)
		if anyOf(family, prefixes) {
			return nil, fmt.Errorf("--cluster-cidr %q: more than one %s range", list, family)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
