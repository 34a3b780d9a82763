package main

import (
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// Settings and a Node may both be right, and together do what nobody means. These are the sentences about it.

// ofSettings returns what the settings do alone, whatever the cluster's state is.
func ofSettings(config ruleset.Config) []string {
	var sentences []string
	for _, family := range openFamilies(config.NodePorts, config.Families) {
		sentences = append(sentences, fmt.Sprintf("--%s has no %s CIDR, so node ports are served on all %s addresses of this node",
			nodePortFlag, family, family))
	}
	return sentences
}

// ofNodePorts says that no node port can be served; empty if some can. The Node is nil while it is unknown.
func ofNodePorts(config ruleset.Config, node *model.Node) string {
	if config.NodePorts.Primary && (node == nil || len(node.Addresses) == 0) {
		return "node ports are not served: --nodeport-addresses is primary, and the Node names no address"
	}
	return ""
}

// ofPods says that no pod can be recognized; empty if some can. The Node is nil while it is unknown.
func ofPods(config ruleset.Config, node *model.Node) string {
	if config.LocalTraffic.PodCIDRs && (node == nil || len(node.PodCIDRs) == 0) {
		return "pods are not recognized: --detect-local-mode is NodeCIDR, and the Node names no podCIDR"
	}
	return ""
}

// hasNodePort reports whether a change brings a Service with a node port.
func hasNodePort(change model.Change) bool {
	for _, service := range change.Services {
		if service != nil && slices.ContainsFunc(service.Ports, func(port model.ServicePort) bool { return port.NodePort != 0 }) {
			return true
		}
	}
	return false
}
