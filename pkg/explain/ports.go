package explain

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Ports tells the story of every Service port that a query asks for, as the cluster's own node decides it: by Service, then in
// the order of the Service's ports, IPv4 before IPv6.
func Ports(cluster *model.Cluster, query Query) []Port {
	names := cluster.ServiceNames()
	if query != (Query{}) {
		names = []model.ObjectName{query.Service}
	}
	var ports []Port
	for _, name := range names {
		for _, decision := range selection.Decide(cluster, name, model.Families) {
			if !query.Match(decision.Service.PortID(decision.Port, decision.Family), decision.Port.Port) {
				continue
			}
			ports = append(ports, build(cluster, decision))
		}
	}
	return ports
}
