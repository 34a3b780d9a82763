package selection

import (
	"strings"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Nodes are the nodes of a cluster as decisions see them, from its own node: for each list of topology keys by which a
// load is bounded, the nodes by their values of the keys. A list costs as much as there are nodes when it is first
// used, and little for each node that changes.
type Nodes struct {
	cluster *model.Cluster

	mutex  sync.Mutex // guards the map, not what is in it: nothing of that changes while decisions are made
	byKeys map[string]*keyList
}

// keyList is a list of keys that is in use.
type keyList struct {
	cells *balance.Cells
	// isUsed: a decision has asked for it since the last Prune.
	isUsed bool
}

// NewNodes returns the nodes of a cluster.
func NewNodes(cluster *model.Cluster) *Nodes {
	return &Nodes{cluster: cluster, byKeys: map[string]*keyList{}}
}

// Note takes in the nodes that the cluster has in another state now.
func (n *Nodes) Note(change model.Change) {
	for name := range change.Nodes {
		labels, known := n.cluster.NodeLabels(name)
		for _, list := range n.byKeys {
			if known {
				list.cells.Set(name, labels)
			} else {
				list.cells.Remove(name)
			}
		}
	}
}

// Prune forgets the lists of keys that no decision has asked for since it was called last: anybody may write new ones.
func (n *Nodes) Prune() {
	for keys, list := range n.byKeys {
		if !list.isUsed {
			delete(n.byKeys, keys)
		}
		list.isUsed = false
	}
}

func (n *Nodes) viewpoint() Viewpoint {
	return Viewpoint{Node: n.cluster.Self(), Labels: n.cluster.NodeLabels, Demand: n.demandOf}
}

// demandOf returns how much each node asks of a Service: as many connections as the other nodes, unless its label says
// more or less; or, if the owner names the clients, as many as it has of their ready endpoints.
func (n *Nodes) demandOf(service *model.Service) (balance.Demand, bool) {
	if !n.cluster.KnowsAllNodes() {
		return balance.Demand{}, false
	}
	cells := n.cellsOf(service.Topology.Keys)
	clients := service.Clients()
	if len(clients) == 0 {
		return cells.ByLabels(), true
	}
	return cells.Named(n.readyEndpoints(clients)), true
}

// readyEndpoints counts the ready endpoints of some Services, by node. One that has addresses in both families counts
// once.
func (n *Nodes) readyEndpoints(services []model.ObjectName) map[string]uint32 {
	byNode := map[string]uint32{}
	for _, service := range services {
		byFamily := map[model.Family]map[string]uint32{model.IPv4: {}, model.IPv6: {}}
		for _, slice := range n.cluster.SlicesOf(service) {
			for i := range slice.Endpoints {
				if endpoint := &slice.Endpoints[i]; endpoint.Ready && endpoint.Node != "" {
					byFamily[slice.Family][endpoint.Node]++
				}
			}
		}
		more := byFamily[model.IPv4]
		for node, count := range byFamily[model.IPv6] {
			more[node] = max(more[node], count)
		}
		for node, count := range more {
			byNode[node] += count
		}
	}
	return byNode
}

func (n *Nodes) cellsOf(keys []policy.Key) *balance.Cells {
	words := make([]string, len(keys))
	for i, key := range keys {
		words[i] = string(key)
	}
	name := strings.Join(words, ",")
	n.mutex.Lock()
	defer n.mutex.Unlock()
	list := n.byKeys[name]
	if list == nil {
		list = &keyList{cells: balance.NewCells(keys, n.cluster.Self().Name)}
		for node := range n.cluster.Nodes() {
			list.cells.Set(node.Name, node.Labels)
		}
		n.byKeys[name] = list
	}
	list.isUsed = true
	return list.cells
}
