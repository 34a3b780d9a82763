package selection

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// Weight returns the approximate cost of deciding a Service and writing it into the tables: its endpoints times its
// ports, plus its frontends. For a headless Service it is roughly the number of targets that DNS may return, for each
// port and for the Service as a whole. It does not iterate over endpoints.
func Weight(cluster *model.Cluster, name model.ObjectName) int {
	service := cluster.Service(name)
	if service == nil {
		return 0
	}
	endpoints, slicePorts := 0, 0
	for _, slice := range cluster.SlicesOf(name) {
		endpoints += len(slice.Endpoints)
		slicePorts += len(slice.Ports)
	}
	ports, addresses := len(service.Ports), 2*len(service.ClusterIPs)+len(service.LoadBalancerIPs)+len(service.ExternalIPs)
	families := len(service.ClusterIPs)
	if service.IsHeadless {
		families, addresses = len(model.Families), len(model.Families)
	}
	slots := min(endpoints*ports, families*model.MaxPortEndpoints)
	if service.IsHeadless {
		slots += endpoints
	}
	if service.Topology.MaxLoad > 0 {
		slots += ports * balance.MaxSlots(endpoints)
	}
	return slots + ports*addresses + slicePorts + len(service.SourceRanges)
}
