package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// These warnings are about settings that are valid, but whose combined effect, also with the Node, is rarely intended.

// NftWarnings returns warnings that follow from the settings alone, whatever the cluster's state.
func NftWarnings(config ruleset.Config) []string {
	var sentences []string
	for _, family := range openFamilies(config.NodePorts, config.Families) {
		sentences = append(sentences, fmt.Sprintf(
			"--nodeport-addresses has no %s CIDR, so node ports are served on all %s addresses of this node", family, family))
	}
	if slices.ContainsFunc(config.NodePorts.Prefixes, isLoopback) && !config.NodePorts.Localhost {
		sentences = append(sentences, "--nodeport-addresses names loopback, which serves node ports only if the feature gate "+
			localhostNodePorts+" is on")
	}
	return sentences
}

func isLoopback(prefix netip.Prefix) bool { return prefix.Addr().IsLoopback() }

// NodePortWarning returns a warning that no node port can be served; empty if some can. node is nil while the Node is
// unknown.
func NodePortWarning(config ruleset.Config, node *model.Node) string {
	serves := func(prefix netip.Prefix) bool { return !isLoopback(prefix) || config.NodePorts.Localhost }
	if !config.NodePorts.Primary || slices.ContainsFunc(config.NodePorts.Prefixes, serves) {
		return ""
	}
	if node == nil || len(node.Addresses) == 0 {
		return "node ports are not served: --nodeport-addresses is primary, and the Node has no address"
	}
	return ""
}

// PodWarning returns a warning that no pod can be recognized; empty if some can. node is nil while the Node is unknown.
func PodWarning(config ruleset.Config, node *model.Node) string {
	if config.LocalTraffic.PodCIDRs && (node == nil || len(node.PodCIDRs) == 0) {
		return "pods are not recognized: --detect-local-mode is NodeCIDR, and the Node has no podCIDR"
	}
	return ""
}

// RenderWarnings returns all of these warnings that matter to the Services.
func RenderWarnings(config ruleset.Config, node *model.Node, services map[model.ObjectName]*model.Service) []string {
	var sentences []string
	if hasNodePort(services) {
		sentences = append(NftWarnings(config), NodePortWarning(config, node))
	}
	sentences = append(sentences, PodWarning(config, node))
	return slices.DeleteFunc(sentences, func(sentence string) bool { return sentence == "" })
}

func hasNodePort(services map[model.ObjectName]*model.Service) bool {
	for _, service := range services {
		if service != nil && slices.ContainsFunc(service.Ports, func(port model.ServicePort) bool { return port.NodePort != 0 }) {
			return true
		}
	}
	return false
}

// PodDetectionMissing returns why pods of a family are not distinguished from other clients on a node; empty if they
// are.
func PodDetectionMissing(detector ruleset.LocalTraffic, family model.Family, node *model.Node) string {
	switch {
	case detector.Interface != "" || detector.InterfacePrefix != "":
		return ""
	case !detector.PodCIDRs && !hasFamily(family, detector.Prefixes):
		return fmt.Sprintf("there is no %s --cluster-cidr", family)
	case detector.PodCIDRs && (node == nil || !hasFamily(family, node.PodCIDRs)):
		return fmt.Sprintf("the Node has no %s podCIDR", family)
	}
	return ""
}

// openFamilies returns those of the families that a list of CIDRs does not restrict, because it has no CIDR of the
// family. Node ports are served on all addresses there, which is rarely intended with a CIDR of the other family.
func openFamilies(nodePorts model.NodePortAddresses, families []model.Family) []model.Family {
	if nodePorts.Primary || len(nodePorts.Prefixes) == 0 {
		return nil
	}
	var open []model.Family
	for _, family := range families {
		if !hasFamily(family, nodePorts.Prefixes) {
			open = append(open, family)
		}
	}
	return open
}

// hasFamily reports whether one of the prefixes is of a family.
func hasFamily(family model.Family, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return model.FamilyOfPrefix(prefix) == family })
}
