package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// The ways to distinguish pods from other clients: kube-proxy's detectLocalMode.
const (
	clusterCIDRMode         = "ClusterCIDR"
	nodeCIDRMode            = "NodeCIDR"
	bridgeInterfaceMode     = "BridgeInterface"
	interfaceNamePrefixMode = "InterfaceNamePrefix"
)

// LinkModes maps the fields that name links to the detectLocalMode in which each has an effect.
var LinkModes = map[string]string{
	"detectLocal.bridgeInterface":     bridgeInterfaceMode,
	"detectLocal.interfaceNamePrefix": interfaceNamePrefixMode,
}

// maxLinkName is the maximum number of bytes in a link's name (IFNAMSIZ without its zero).
const maxLinkName = 15

// localTraffic reads how pods are distinguished from other clients: in one way at most. A clusterCIDR may be set
// together with another mode, because tools that install kube-proxy always write it: then it is ignored, as in
// kube-proxy.
func (c *checker) localTraffic(from *Configuration) ruleset.LocalTraffic {
	switch mode := string(from.DetectLocalMode); mode {
	case nodeCIDRMode:
		return ruleset.LocalTraffic{PodCIDRs: true}
	case bridgeInterfaceMode:
		return ruleset.LocalTraffic{Interface: c.linkName("detectLocal.bridgeInterface", from.DetectLocal.BridgeInterface)}
	case interfaceNamePrefixMode:
		prefix := c.linkName("detectLocal.interfaceNamePrefix", from.DetectLocal.InterfaceNamePrefix)
		if len(prefix) == maxLinkName { // no name is longer, and nft cannot read a wildcard there
			return ruleset.LocalTraffic{Interface: prefix}
		}
		return ruleset.LocalTraffic{InterfacePrefix: prefix}
	default:
		c.oneOf("detectLocalMode", mode, clusterCIDRMode, nodeCIDRMode, bridgeInterfaceMode, interfaceNamePrefixMode)
	}
	return ruleset.LocalTraffic{Prefixes: c.clusterCIDRs(from.ClusterCIDR)}
}

// unusedDetectors returns notes about the settings for recognizing pods that have no effect in the file's
// detectLocalMode.
func unusedDetectors(c *Configuration) []string {
	var notes []string
	if mode := cmp.Or(string(c.DetectLocalMode), clusterCIDRMode); c.ClusterCIDR != "" && mode != clusterCIDRMode {
		notes = append(notes, "clusterCIDR: only detectLocalMode "+clusterCIDRMode+" uses it")
	}
	for _, field := range []string{"detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix"} {
		if Get(c, field) != "" && string(c.DetectLocalMode) != LinkModes[field] {
			notes = append(notes, fmt.Sprintf("%s: only detectLocalMode %s uses it", field, LinkModes[field]))
		}
	}
	return notes
}

// linkName accepts the names and prefixes of links that the kernel accepts (dev_valid_name), unless nft cannot write
// them: a quote ends the name there, * is the wildcard after a prefix, and a backslash would escape that.
func (c *checker) linkName(field, name string) string {
	isForbidden := func(char rune) bool {
		return unicode.IsSpace(char) || unicode.IsControl(char) || strings.ContainsRune(`/:"*\`, char)
	}
	switch i := strings.IndexFunc(name, isForbidden); {
	case name == "":
		c.addError(field, "detectLocalMode %s needs it", LinkModes[field])
	case len(name) > maxLinkName:
		c.addError(field, "%q has %d bytes; the name of a link has at most %d", name, len(name), maxLinkName)
	case i >= 0:
		char := []rune(name[i:])[0]
		c.addError(field, "%q: the name of a link cannot contain %q; give one name or name prefix, without wildcard", name, char)
	case name == "." || name == "..":
		c.addError(field, "%q: no link can have that name", name)
	}
	return name
}

// clusterCIDRs reads ranges of pod addresses, at most one of each family, and clears the bits beyond each prefix.
func (c *checker) clusterCIDRs(list string) []netip.Prefix {
	const field = "clusterCIDR"
	if list == "" {
		return nil
	}
	var prefixes []netip.Prefix
	for text := range strings.SplitSeq(list, ",") {
		prefix, err := parseCIDR(text)
		if err != nil {
			c.addError(field, "%v", err)
			continue
		}
		family := model.FamilyOfPrefix(prefix)
		if slices.ContainsFunc(prefixes, func(other netip.Prefix) bool { return model.FamilyOfPrefix(other) == family }) {
			c.addError(field, "%q: more than one %s range", list, family)
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

// parseCIDR reads one entry of a list, and clears the bits beyond the prefix.
func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR such as 10.244.0.0/16", text)
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4 range in IPv6 form; write it as IPv4", prefix)
	}
	return prefix.Masked(), nil
}
