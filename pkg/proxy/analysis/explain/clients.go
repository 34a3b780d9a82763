package explain

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Clients are the settings about the clients of Services. They decide which clients get which endpoints, and which
// client address an endpoint sees; the endpoints and the reasons stay the same. The zero value recognizes pods in both
// families, and masquerades only if necessary.
type Clients struct {
	// PodsUnknown holds the families in which pods are not recognized, with the reason: a clause that can follow
	// "because", without a full stop. Pods there count as clients outside.
	PodsUnknown map[model.Family]string
	// MasqueradeAll masquerades every connection to a ClusterIP, also those of pods.
	MasqueradeAll bool
	// TopologySource is the source of other nodes' labels; empty if it is unknown.
	TopologySource string
	// NodePorts determine whether node ports are served on loopback.
	NodePorts model.NodePortAddresses
	// Rejected are the Services that the node's kernel rejects, by namespace/name.
	Rejected map[string]*Rejection
}

// Ports explains every Service port that a query covers, as the cluster's own node decides it: by Service, then in the
// order of the Service's ports, IPv4 before IPv6.
func (c Clients) Ports(cluster *model.Cluster, query Query) []PortReport {
	views := &Views{cluster: cluster, planner: selection.NewPlanner(cluster), query: query, names: query.namesIn(cluster)}
	return views.Ports(c, &model.Node{Name: cluster.Self().Name, Addresses: cluster.LocalAddrs()})
}

// portsOf explains the ports of one Service that a query covers, given the decisions about them.
func (c Clients) portsOf(
	cluster *model.Cluster, planner *selection.Planner, decisions []selection.Decision, query Query, dialled dialledAddress,
) []PortReport {
	if len(decisions) == 0 {
		return nil
	}
	var ports []PortReport
	dnsNames, endpointSlices := newHeadlessDNS(decisions), newServiceSlices(cluster, decisions[0].Service)
	for _, decision := range decisions {
		if !query.matchesPort(decision, dialled) || dnsNames.lacksFamily(decision) {
			continue
		}
		port := c.buildReport(cluster, decision, dialled)
		port.HealthCheck = healthCheck(decisions, decision.Family)
		dnsNames.complete(&port, decision)
		endpointSlices.complete(&port, decision)
		port.Load = loadOf(cluster, planner, decision)
		ports = append(ports, port)
	}
	return ports
}

// clusterIPSource returns which source address endpoints see for the ClusterIP, if it does not depend on the client.
func (c Clients) clusterIPSource() clientSource {
	if c.MasqueradeAll {
		return masqueraded
	}
	return clientSource{}
}

// outsidePath and inside are the paths of connections to frontends that externalTrafficPolicy Local governs. Connections
// from this node itself are always masqueraded, and no others are (KEP-2086 and kube-proxy's packet matrix).
func (c Clients) outsidePath(family model.Family) trafficPath {
	path := trafficPath{subject: "New connections from outside", policy: "externalTrafficPolicy", source: kept}
	if reason, unknown := c.PodsUnknown[family]; unknown {
		path.subject += " (which includes pods, because " + reason + ")"
	}
	return path
}

func (c Clients) insidePath(family model.Family) trafficPath {
	if _, unknown := c.PodsUnknown[family]; unknown {
		return trafficPath{subject: "New connections from this node", source: nodeMasqueraded}
	}
	return trafficPath{subject: "New connections from pods and this node", source: keptForPods}
}
