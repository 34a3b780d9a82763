package main

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
)

// topologyFlags say from where it is known where other nodes are.
type topologyFlags struct{ source, namespace string }

func (f *topologyFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.source, "node-topology", string(cluster.AutoTopology),
		"`SOURCE` of where other nodes are, if a Service's topology keys ask for it: nodes, the metadata of every Node; slices, the "+
			"TopologySlices that a webhook publishes; auto, those while one does, and Nodes otherwise")
	flags.StringVar(&f.namespace, "topology-namespace", "vicinity-system", "`NAMESPACE` of the webhook that publishes TopologySlices")
}

func (f *topologyFlags) Validate() error {
	sources := []string{string(cluster.AutoTopology), string(cluster.SlicesTopology), string(cluster.NodesTopology)}
	if !slices.Contains(sources, f.source) {
		return fmt.Errorf("--node-topology %q is none of %q", f.source, sources)
	}
	return nil
}
