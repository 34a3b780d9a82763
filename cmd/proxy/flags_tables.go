package main

import (
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// clientSettings determine which clients are pods and which are masqueraded. All commands that show what happens to
// connections have them.
var clientSettings = []settingFlag{
	{
		"detect-local-mode", "detectLocalMode",
		"`MODE` of recognizing pods among clients: ClusterCIDR, by the addresses in --cluster-cidr; NodeCIDR, by those in this node's " +
			"podCIDRs; BridgeInterface or InterfaceNamePrefix, by the link on which their packets arrive. Connections to a ClusterIP that do " +
			"not come from pods are masqueraded, and pods that dial an address whose externalTrafficPolicy is Local reach endpoints on all nodes",
	},
	{
		"cluster-cidr", "clusterCIDR",
		"`CIDR` of the pods, at most one per family, comma-separated, for mode ClusterCIDR only. In a family without one, pods are not " +
			"recognized: nothing to a ClusterIP is masqueraded, and pods count as clients outside",
	},
	{
		"pod-bridge-interface", "detectLocal.bridgeInterface",
		"`NAME` of the bridge that pods are attached to, such as cni0, for mode BridgeInterface",
	},
	{
		"pod-interface-name-prefix", "detectLocal.interfaceNamePrefix",
		"`PREFIX` of the names of all links to pods, such as veth or cali, for mode InterfaceNamePrefix",
	},
	{
		"masquerade-all", "nftables.masqueradeAll",
		"masquerade every connection to a ClusterIP, including those of pods; endpoints then see this node as the client",
	},
}

// clients returns the client settings as package explain needs them. The node may be nil, if it is unknown.
func (f *stateFlags) clients(node *model.Node) explain.Clients {
	clients := explain.Clients{PodsUnknown: map[model.Family]string{}, MasqueradeAll: f.settings.MasqueradeAll,
		TopologySource: f.topologySource}
	clients.NodePorts = f.settings.NodePorts
	for _, family := range model.Families {
		if reason := config.PodDetectionMissing(f.settings.LocalTraffic, family, node); reason != "" {
			clients.PodsUnknown[family] = reason
		}
	}
	return clients
}

// tableFlags are the inputs of the tables: the state, the clients, and the addresses that serve node ports. Their names
// and defaults are kube-proxy's.
type tableFlags struct{ stateFlags }

var nodePortSettings = []settingFlag{{
	"nodeport-addresses", "nodePortAddresses",
	"`ADDRESSES` of this node that serve node ports, comma-separated: primary for those that the Node object lists, all, and CIDRs. " +
		"Without primary, a family without a CIDR serves them on all addresses, so give both. localhost serves TCP on 127.0.0.1 and ::1, " +
		"only with the feature gate KubeProxyNFTablesLocalhostNodePorts",
}}

func (f *tableFlags) register(flags *pflag.FlagSet) {
	f.stateFlags.register(flags, orStdin, clientSettings, nodePortSettings)
	registerPublisher(flags, &f.topology.namespace)
}
