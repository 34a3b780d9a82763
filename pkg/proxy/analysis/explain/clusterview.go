package explain

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ClusterView returns the cluster as seen from one of its nodes. change contains its complete state.
func ClusterView(change model.Change, node string, nodePorts model.NodePortAddresses) *model.Cluster {
	cluster := model.NewCluster(node)
	cluster.NodePorts = nodePorts
	if self := change.Nodes[node]; self != nil {
		change.LocalAddrs = self.Addresses // the command may run on another machine
	}
	cluster.Apply(change)
	return cluster
}
