package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Flows says which endpoints may go on answering the flows that one frontend has already. Both lists are empty if none
// may: the Service has lost its last endpoint, or the frontend.
//
// It is wider than a Choice. A flow keeps its endpoint as long as that one serves, be it terminating, and as long as
// the Service's policies and topology keys allow its place at all; that a nearer tier has come up is no reason to
// break it.
type Flows struct {
	Frontend model.Frontend
	Inside   []netip.AddrPort // may answer the pods and this node
	Outside  []netip.AddrPort // may answer all other clients
	Sources  []netip.Prefix   // the clients that may dial the frontend; empty: all
}

// Flows returns, for each frontend that leads to the port, who may answer its flows.
func (d Decision) Flows() []Flows {
	anywhere := serving(d.Endpoints, func(endpoint *model.PortEndpoint) bool {
		return d.Viewpoint.allows(d.Service.Topology.Keys, endpoint)
	})
	here := serving(d.Endpoints, d.Viewpoint.isHere)
	flows := make([]Flows, 0, len(d.Owned))
	for _, frontend := range d.Owned {
		one := Flows{Frontend: frontend.Frontend, Inside: anywhere, Outside: anywhere}
		if frontend.Kind == model.LoadBalancerIP {
			one.Sources = d.Sources
		}
		switch external := frontend.Kind.IsExternal(); {
		case !external && d.Service.InternalTrafficLocal:
			one.Inside, one.Outside = here, here
		case external && d.Service.ExternalTrafficLocal:
			one.Outside = here
		}
		flows = append(flows, one)
	}
	return flows
}

func serving(endpoints []model.PortEndpoint, allowed func(*model.PortEndpoint) bool) []netip.AddrPort {
	var addrs []netip.AddrPort
	for i := range endpoints {
		// A pod that publishes its address before it is ready is ready, and does not serve.
		if (endpoints[i].Ready || endpoints[i].Serving) && allowed(&endpoints[i]) {
			addrs = append(addrs, endpoints[i].Addr)
		}
	}
	return addrs
}

// allows reports whether the topology keys ever let a connection go to an endpoint: whether any of them matches.
func (v Viewpoint) allows(keys []policy.Key, endpoint *model.PortEndpoint) bool {
	return len(keys) == 0 || slices.ContainsFunc(keys, func(key policy.Key) bool {
		own, carried := v.ownValue(key)
		return carried && v.matches(endpoint, key, own)
	})
}
