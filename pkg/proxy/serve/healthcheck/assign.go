//go:build linux

package healthcheck

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// listenAddrs returns the addresses of a family to bind: those on which the node serves node ports. It omits IPv6
// link-local addresses: they are meaningless without their interface, and a load balancer could not reach them.
func listenAddrs(scope *selection.Scope, family model.Family) []netip.Addr {
	if slices.Contains(scope.AllAddrFamilies, family) {
		if family == model.IPv4 {
			return []netip.Addr{netip.IPv4Unspecified()}
		}
		return []netip.Addr{netip.IPv6Unspecified()}
	}
	return slices.DeleteFunc(slices.Clone(scope.NodePorts), func(addr netip.Addr) bool {
		return model.FamilyOf(addr) != family || addr.Is6() && addr.IsLinkLocalUnicast()
	})
}

// notServedFinding returns the finding that a Service's health check is not served at an address or in a family.
func notServedFinding(service model.ObjectName, err error) model.Finding {
	reason := fmt.Sprintf("Load balancers treat this node as one without endpoints of this Service; retrying: "+
		"serve health checks of Service %s: %v", service, err)
	return model.Finding{Code: model.HealthCheckListenFailed, Reason: reason, Local: true}.WithObject("Service", service)
}

// claimPorts assigns responses to addresses and ports. The API server gives each port to only one Service. If two
// Services have the same one nevertheless, the one with the lexically smaller name keeps it, and the others are not
// served.
func claimPorts(
	checks map[model.ObjectName]selection.HealthCheck, scope *selection.Scope,
) (map[netip.AddrPort]response, []model.Finding) {
	assigned := map[netip.AddrPort]response{}
	var findings []model.Finding
	names := slices.SortedFunc(maps.Keys(checks), model.ObjectName.Compare)
	for _, family := range model.Families {
		addrs := listenAddrs(scope, family)
		if len(addrs) == 0 {
			continue
		}
		owners := map[uint16]model.ObjectName{}
		for _, name := range names {
			port := checks[name].Port
			endpoints, ok := checks[name].Endpoints[family]
			if !ok {
				continue
			}
			if owner, taken := owners[port]; taken {
				err := fmt.Errorf("over %s: port %d is the healthCheckNodePort of Service %s", family, port, owner)
				findings = append(findings, notServedFinding(name, err))
				continue
			}
			owners[port] = name
			for _, addr := range addrs {
				assigned[netip.AddrPortFrom(addr, port)] = response{service: name, endpoints: endpoints}
			}
		}
	}
	return assigned, findings
}
