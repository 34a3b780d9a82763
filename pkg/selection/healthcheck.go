package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// HealthCheck is what a node answers a load balancer about a Service with externalTrafficPolicy: Local (KEP-2086,
// spec.healthCheckNodePort).
type HealthCheck struct {
	Port uint16
	// Endpoints are the Service's families, each with the number of addresses on this node that have a ready endpoint of
	// any port. Endpoints that terminate do not count, even while they still serve: the load balancer shall send nothing
	// new.
	Endpoints map[model.Family]int
}

// HealthCheckOf returns what the cluster's own node answers about a Service; false if it has no health check.
func HealthCheckOf(cluster *model.Cluster, name model.ObjectName) (HealthCheck, bool) {
	service := cluster.Service(name)
	if service == nil || service.HealthCheckNodePort == 0 {
		return HealthCheck{}, false
	}
	viewpoint, joined := Viewpoint{Node: cluster.Self()}, model.Join(service, cluster.SlicesOf(name))
	check := HealthCheck{Port: service.HealthCheckNodePort, Endpoints: map[model.Family]int{}}
	for _, addr := range service.ClusterIPs {
		family, ready := model.FamilyOf(addr), map[netip.Addr]bool{}
		for _, port := range service.Ports {
			endpoints, _ := joined.Endpoints(port, family)
			cluster.MarkVirtual(name, endpoints)
			for _, endpoint := range endpoints {
				if endpoint.Ready && viewpoint.isHere(&endpoint) {
					ready[endpoint.Addr.Addr()] = true
				}
			}
		}
		check.Endpoints[family] = len(ready)
	}
	return check, true
}
