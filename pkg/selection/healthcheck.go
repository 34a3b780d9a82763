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

// HealthCheckOf returns what the node answers about a Service that all of these decisions are about; false if it has no
// health check.
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
