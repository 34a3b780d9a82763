package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// AllowedEndpoints returns the endpoints that may answer connections, and those on this node; and those that may answer open
// connections only, because their node does not answer this one and others serve in their place. It may come back.
//
// They are more than a Choice has. A connection keeps its endpoint as long as that one serves, even if it is terminating,
// and as long as the Service's policies and topology keys allow its place at all. A nearer tier that has come up is no
// reason to break it.
func (d Decision) AllowedEndpoints() (anywhere, here, open []netip.AddrPort) {
	isAllowed := func(endpoint *model.PortEndpoint) bool { return d.Viewpoint.allows(d.Service.Topology.Keys, endpoint) }
	anywhere = serving(d.Endpoints, func(endpoint *model.PortEndpoint) bool {
		return isAllowed(endpoint) && !d.isUnreachableStandby(endpoint)
	})
	open = serving(d.Endpoints, func(endpoint *model.PortEndpoint) bool {
		return isAllowed(endpoint) && d.isUnreachableStandby(endpoint) && !endpoint.Demotion.IsLasting
	})
	return anywhere, serving(d.Endpoints, d.Viewpoint.isLocal), open
}

// IsLocalOnly reports whether a policy keeps connections to a frontend on this node, for each kind of client.
func (d Decision) IsLocalOnly(kind model.FrontendKind) (inside, outside bool) {
	if kind.IsExternal() {
		return false, d.Service.ExternalTrafficLocal
	}
	return d.Service.InternalTrafficLocal, d.Service.InternalTrafficLocal
}

func serving(endpoints []model.PortEndpoint, allowed func(*model.PortEndpoint) bool) []netip.AddrPort {
	var addrs []netip.AddrPort
	for i := range endpoints {
		// A pod that publishes its address before it is ready counts as ready, but does not serve.
		if (endpoints[i].Ready || endpoints[i].Serving) && allowed(&endpoints[i]) {
			addrs = append(addrs, endpoints[i].Addr)
		}
	}
	return addrs
}

// allows reports whether the topology keys ever let a connection go to an endpoint: whether any of them matches.
func (v NodeView) allows(keys []policy.Key, endpoint *model.PortEndpoint) bool {
	return len(keys) == 0 || v.firstMatch(keys, endpoint) < len(keys)
}
