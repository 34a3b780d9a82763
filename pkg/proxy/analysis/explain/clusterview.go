package explain

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ClusterView is a state of the cluster as one of its nodes sees it. change begins the state.
func ClusterView(change model.Change, node string, nodePorts model.NodePortAddresses) *model.Cluster {
	cluster := model.NewCluster(node)
	cluster.NodePorts = nodePorts
	if own := change.Nodes[node]; own != nil {
		change.LocalAddrs = own.Addresses // the command may run on another machine
	}
	cluster.Apply(change)
	return cluster
}
