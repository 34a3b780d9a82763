package explain

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Views explains one state of the cluster as seen from several of its nodes. The parts that do not depend on the node
// are computed only once.
type Views struct {
	cluster *model.Cluster
	planner *selection.Planner
	query   Query
	names   []model.ObjectName // see namesIn
}

// NewViews returns the views of a cluster. change contains its complete state.
func NewViews(change model.Change, nodePorts model.NodePortAddresses, query Query) *Views {
	cluster := ClusterView(change, "", nodePorts)
	return &Views{cluster: cluster, planner: selection.NewPlanner(cluster), query: query, names: query.namesIn(cluster)}
}

// Ports explains the query for a node, in the order of Clients.Ports.
func (v *Views) Ports(clients Clients, node *model.Node) (all []PortReport) {
	v.explainNodes([]*model.Node{node}, clients, func(ports []PortReport) bool {
		all = append(all, ports...)
		return true
	})
	return all
}

// From returns the cluster as seen from a node. The node's addresses are those in its object: the command may run on
// another machine.
func (v *Views) From(node *model.Node) *model.Cluster {
	return v.cluster.ViewFrom(node.Name, node.Addresses)
}

// namesIn returns the Services that a query selects by name, sorted; if an address is dialled, those with this
// ClusterIP.
func (q Query) namesIn(cluster *model.Cluster) []model.ObjectName {
	switch {
	case q.AddrPort.IsValid():
		return slices.DeleteFunc(cluster.ServiceNames(), func(name model.ObjectName) bool {
			return !slices.Contains(cluster.Service(name).ClusterIPs, q.AddrPort.Addr())
		})
	case q.Service.Name != "":
		return []model.ObjectName{q.Service}
	}
	return slices.DeleteFunc(cluster.ServiceNames(), func(name model.ObjectName) bool { return !q.Covers(name) })
}
