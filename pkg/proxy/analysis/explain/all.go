package explain

import (
	"iter"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// All explains the query for some nodes, Service by Service: once for nodes that decide alike, as seen from the first
// of them. The cost is proportional to the sum of the nodes, the endpoints and the different
// decisions.
func (v *Views) All(nodes []*model.Node, clientsOf func(*model.Node) Clients) iter.Seq[[]PortReport] {
	return func(yield func([]PortReport) bool) {
		for _, group := range v.groupByClients(nodes, clientsOf) {
			if !v.explainNodes(group, clientsOf(group[0]), yield) {
				return
			}
		}
	}
}

// groupByClients groups nodes that recognize pods in the same families. A node that has the dialled address is in a
// group of its own.
func (v *Views) groupByClients(nodes []*model.Node, clientsOf func(*model.Node) Clients) (groups [][]*model.Node) {
	groupIndexes := map[[3]string]int{}
	for _, node := range nodes {
		dialledNode := ""
		if slices.Contains(node.Addresses, v.query.AddrPort.Addr()) {
			dialledNode = node.Name
		}
		unknown := clientsOf(node).PodsUnknown
		key := [...]string{unknown[model.IPv4], unknown[model.IPv6], dialledNode}
		groupIndex, known := groupIndexes[key]
		if !known {
			groupIndex = len(groups)
			groupIndexes[key] = groupIndex
			groups = append(groups, nil)
		}
		groups[groupIndex] = append(groups[groupIndex], node)
	}
	return groups
}

func (v *Views) explainNodes(nodes []*model.Node, clients Clients, yield func([]PortReport) bool) bool {
	firstView, grouper, services := v.From(nodes[0]), selection.NewNodeGrouper(nodes), v.names
	dialled := v.query.resolveAddress(firstView)
	if dialled.addr.IsValid() {
		services = dialled.services
	}
	for _, name := range services {
		v.planner.SetView(firstView)
		decisions := v.planner.Decide(name, model.Families)
		if len(decisions) == 0 {
			continue
		}
		for i, group := range grouper.Groups(decisions) {
			view := firstView
			if i > 0 {
				view = v.From(nodes[group.Nodes[0]])
				v.planner.SetView(view)
				decisions = v.planner.Decide(name, model.Families)
			}
			ports := clients.portsOf(view, v.planner, decisions, v.query, dialled)
			others := make([]string, 0, len(group.Nodes)-1)
			for _, nodeIndex := range group.Nodes[1:] {
				others = append(others, nodes[nodeIndex].Name)
			}
			for portIndex := range ports {
				ports[portIndex].addAlike(others, group)
			}
			if len(ports) > 0 && !yield(ports) {
				return false
			}
		}
	}
	undefined := dialled.undefinedPort(firstView, v.names)
	if undefined == nil {
		return true
	}
	var others []string
	for _, node := range nodes[1:] {
		others = append(others, node.Name)
	}
	undefined.addAlike(others, selection.Group{})
	return yield([]PortReport{*undefined})
}

// addAlike adds the other nodes that decide alike, and what differs between all of these nodes.
func (p *PortReport) addAlike(others []string, group selection.Group) {
	if len(others) == 0 {
		return
	}
	var differences []string
	for _, key := range group.Shared {
		differences = append(differences, "by its own "+describeSharing(key, "the same number of"))
	}
	for _, key := range group.Unshared {
		differences = append(differences, "by its own "+describeSharing(key, "no"))
	}
	if group.OnNode {
		differences = append(differences, "by the endpoints on the node itself, of which each node has the same number")
	}
	p.Alike = &Alike{Nodes: others}
	if len(differences) > 0 {
		p.Alike.Differences = "Each decides " + strings.Join(differences, ", and ") + "."
	}
	if p.Load != nil && len(p.Cluster.Endpoints) > 1 {
		p.Alike.Differences = strings.TrimSpace(p.Alike.Differences + " Each rounds the same shares to its own slots.")
	}
}

// describeSharing describes how many endpoints share a value of a key, or have a hint with it.
func describeSharing(key, count string) string {
	switch key {
	case selection.TierForZones:
		return "zone: " + count + " endpoints have a hint for it"
	case selection.TierForNodes:
		return "name: " + count + " endpoints have a hint for it"
	}
	return key + ": " + count + " endpoints share it"
}
