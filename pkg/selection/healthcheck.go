package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// HealthCheck is a node's response to a load balancer's health check of a Service with externalTrafficPolicy: Local
// (KEP-2086, spec.healthCheckNodePort).
type HealthCheck struct {
	Port uint16
	// Endpoints has, for each family of the Service, the number of addresses on this node with a ready endpoint of any
	// port. Terminating endpoints do not count, even while they serve: the load balancer must send no new connections.
	Endpoints map[model.Family]int
}

// HealthCheckOf returns the node's response for the Service of these decisions, and false if it has no health check.
func HealthCheckOf(decisions []Decision) (HealthCheck, bool) {
	if len(decisions) == 0 || decisions[0].Service.HealthCheckNodePort == 0 || decisions[0].Service.IsHeadless {
		return HealthCheck{}, false
	}
	ready := map[model.Family]map[netip.Addr]bool{}
	for i := range decisions {
		decision := &decisions[i]
		if ready[decision.Family] == nil {
			ready[decision.Family] = map[netip.Addr]bool{}
		}
		for j := range decision.Endpoints {
			if endpoint := &decision.Endpoints[j]; endpoint.Ready && decision.Viewpoint.isLocal(endpoint) {
				ready[decision.Family][endpoint.Addr.Addr()] = true
			}
		}
	}
	check := HealthCheck{Port: decisions[0].Service.HealthCheckNodePort, Endpoints: map[model.Family]int{}}
	for family, endpoints := range ready {
		check.Endpoints[family] = len(endpoints)
	}
	return check, true
}
