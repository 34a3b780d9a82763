package selection

import "github.com/vicinity-proxy/vicinity/pkg/model"

// Weight is about how much work a Service is to decide, and to put into the tables: its endpoints times its ports, and
// its frontends. It looks at no endpoint.
func Weight(cluster *model.Cluster, name model.ObjectName) int {
	service := cluster.Service(name)
	if service == nil {
		return 0
	}
	endpoints, offers := 0, 0
	for _, slice := range cluster.SlicesOf(name) {
		endpoints += len(slice.Endpoints)
		offers += len(slice.Ports)
	}
	ports, addresses := len(service.Ports), 2*len(service.ClusterIPs)+len(service.LoadBalancerIPs)+len(service.ExternalIPs)
	return min(endpoints*ports, len(service.ClusterIPs)*model.MaxPortEndpoints) + ports*addresses + offers + len(service.SourceRanges)
}
