package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// AllowedEndpoints returns the endpoints that may serve connections (cluster), those on this node (local), and those
// that may serve only connections that are already open (openOnly). The nodes of the last ones are unreachable, which
// may be temporary, and other endpoints serve new connections.
//
// A Choice has fewer endpoints. A connection keeps its endpoint while the endpoint serves, even if it is terminating,
// and while the Service's policies and topology keys allow it at all. A nearer tier that becomes available is no reason
// to break the connection.
func (d Decision) AllowedEndpoints() (cluster, local, openOnly []netip.AddrPort) {
	isAllowed := func(endpoint *model.PortEndpoint) bool { return d.Viewpoint.allows(d.Service.Topology.Keys, endpoint) }
	cluster = serving(d.Endpoints, func(endpoint *model.PortEndpoint) bool {
		return isAllowed(endpoint) && !d.isUnreachableStandby(endpoint)
	})
	openOnly = serving(d.Endpoints, func(endpoint *model.PortEndpoint) bool {
		return isAllowed(endpoint) && d.isUnreachableStandby(endpoint) && !endpoint.Demotion.IsLasting
	})
	return cluster, serving(d.Endpoints, d.Viewpoint.isLocal), openOnly
}

// IsLocalOnly reports whether a policy keeps connections to a frontend on this node, for internal and external clients.
func (d Decision) IsLocalOnly(kind model.FrontendKind) (internal, external bool) {
	if kind.IsExternal() {
		return false, d.Service.ExternalTrafficLocal
	}
	return d.Service.InternalTrafficLocal, d.Service.InternalTrafficLocal
}

func serving(endpoints []model.PortEndpoint, allowed func(*model.PortEndpoint) bool) []netip.AddrPort {
	var addrs []netip.AddrPort
	for i := range endpoints {
		// A pod that publishes its address before it is ready is Ready, but not Serving.
		if (endpoints[i].Ready || endpoints[i].Serving) && allowed(&endpoints[i]) {
			addrs = append(addrs, endpoints[i].Addr)
		}
	}
	return addrs
}

// allows reports whether the topology keys allow connections to an endpoint at all: whether any key matches it.
func (v NodeView) allows(keys []policy.Key, endpoint *model.PortEndpoint) bool {
	return len(keys) == 0 || v.firstMatch(keys, endpoint) < len(keys)
}
