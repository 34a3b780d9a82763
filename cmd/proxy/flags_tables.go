package main

import "github.com/spf13/pflag"

// tableFlags say what the tables are made from: the state, who the clients are, and where node ports are served.
// Their names and defaults are kube-proxy's.
type tableFlags struct{ stateFlags }

var nodePortSettings = []settingFlag{{
	"nodeport-addresses", "nodePortAddresses",
	"`ADDRESSES` of this node that serve node ports, comma-separated: primary for those that the Node object names, all, and CIDRs. " +
		"Without primary, a family without a CIDR serves them on all addresses, so name both. localhost serves TCP on 127.0.0.1 and ::1, " +
		"with the feature gate KubeProxyNFTablesLocalhostNodePorts alone",
}}

func (f *tableFlags) register(flags *pflag.FlagSet) {
	f.stateFlags.register(flags, orStdin, clientSettings, nodePortSettings)
	registerPublisher(flags, &f.topology.namespace)
}
