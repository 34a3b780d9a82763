package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/explain"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// clientFlags say who the clients are and which of them are masqueraded. All commands that tell what happens to connections have
// them.
type clientFlags struct {
	localTraffic  localTrafficFlags
	masqueradeAll bool
}

func (f *clientFlags) register(flags *pflag.FlagSet) {
	f.localTraffic.register(flags)
	flags.BoolVar(&f.masqueradeAll, "masquerade-all", false,
		"masquerade every connection to a ClusterIP, those of pods too; endpoints then see this node as the client")
}

// Validate checks all flags, and tells every mistake at once.
func (f *clientFlags) Validate() error { return f.localTraffic.Validate() }

// clients is the same as explain is told it for a node, which is nil while it is unknown.
func (f *clientFlags) clients(node *model.Node) explain.Clients {
	clients := explain.Clients{PodsUnknown: map[model.Family]string{}, MasqueradeAll: f.masqueradeAll}
	for _, family := range model.Families {
		if why := f.localTraffic.podsUnknown(family, node); why != "" {
			clients.PodsUnknown[family] = why
		}
	}
	return clients
}

// podsUnknown says why pods of a family are not told from others on a node; empty if they are.
func (f *localTrafficFlags) podsUnknown(family model.Family, node *model.Node) string {
	detector := f.config()
	switch {
	case detector.Interface != "" || detector.InterfacePrefix != "":
		return ""
	case !detector.PodCIDRs && !anyOf(family, detector.Prefixes):
		return fmt.Sprintf("no %s --cluster-cidr tells them apart", family)
	case detector.PodCIDRs && (node == nil || !anyOf(family, node.PodCIDRs)):
		return fmt.Sprintf("the Node names no %s podCIDR that tells them apart", family)
	}
	return ""
}
