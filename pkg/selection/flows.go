package selection

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Flows says which endpoints may go on answering the existing flows of one frontend. Both lists are empty if none may:
// the Service has lost its last endpoint, or the frontend.
//
// It is wider than a Choice. A flow keeps its endpoint as long as that one serves, even if it is terminating, and as
// long as the Service's policies and topology keys allow its place at all. A nearer tier that has come up is no reason
// to break the flow.
type Flows struct {
	Frontend model.Frontend
	Inside   []netip.AddrPort // may answer the pods and this node
	Outside  []netip.AddrPort // may answer all other clients
	Sources  []netip.Prefix   // the clients that may dial the frontend; empty: all

	// Endpoints are set only for node ports. They are the Service's endpoints, whatever their state, and those that left
	// since the last look at the flows. A node port has a number and no address, and other programs may use the number at
	// any address: the answerer shows whether a flow belongs to the Service.
	Endpoints []netip.AddrPort
	// Incomplete: there may have been other endpoints. After a start that is unknown.
	Incomplete bool
}

// After returns the flows with the former endpoints of an earlier version added. If versions follow each other and no
// look succeeds, the list grows, but only by the addresses that the Service's pods had meanwhile.
func (f Flows) After(earlier Flows) Flows {
	f.Incomplete = f.Incomplete || earlier.Incomplete
	f.Endpoints = union(f.Endpoints, earlier.Endpoints)
	return f
}

// union returns the endpoints of both lists. It changes neither.
func union(list, more []netip.AddrPort) []netip.AddrPort {
	if len(more) == 0 || slices.Equal(list, more) {
		return list
	}
	if len(list) == 0 {
		return more
	}
	there := make(map[netip.AddrPort]bool, len(list))
	for _, endpoint := range list {
		there[endpoint] = true
	}
	all := slices.Clip(list)
	for _, endpoint := range more {
		if !there[endpoint] {
			all = append(all, endpoint)
		}
	}
	return all
}

// Flows returns, for each frontend that leads to the port, who may answer its flows.
func (d Decision) Flows() []Flows {
	anywhere, here := d.Answering()
	flows := make([]Flows, 0, len(d.Owned))
	for _, frontend := range d.Owned {
		one := Flows{Frontend: frontend.Frontend, Inside: anywhere, Outside: anywhere}
		if frontend.Kind == model.LoadBalancerIP {
			one.Sources = d.Sources
		}
		if frontend.Kind == model.NodePort {
			one.Endpoints = d.allEndpoints(anywhere)
		}
		inside, outside := d.AnsweredHere(frontend.Kind)
		if inside {
			one.Inside = here
		}
		if outside {
			one.Outside = here
		}
		flows = append(flows, one)
	}
	return flows
}

// Answering returns the endpoints that may answer existing connections, and those of them on this node.
func (d Decision) Answering() (anywhere, here []netip.AddrPort) {
	anywhere = serving(d.Endpoints, func(endpoint *model.PortEndpoint) bool {
		return d.Viewpoint.allows(d.Service.Topology.Keys, endpoint) && !d.isLeft(endpoint)
	})
	return anywhere, serving(d.Endpoints, d.Viewpoint.isHere)
}

// AnsweredHere reports whether a policy keeps connections to a frontend on this node, for each kind of client.
func (d Decision) AnsweredHere(kind model.FrontendKind) (inside, outside bool) {
	if kind.IsExternal() {
		return false, d.Service.ExternalTrafficLocal
	}
	return d.Service.InternalTrafficLocal, d.Service.InternalTrafficLocal
}

// allEndpoints returns the endpoints in any state. Mostly all of them serve: then it is the same list.
func (d Decision) allEndpoints(serving []netip.AddrPort) []netip.AddrPort {
	if len(serving) == len(d.Endpoints) {
		return serving
	}
	all := make([]netip.AddrPort, len(d.Endpoints))
	for i := range d.Endpoints {
		all[i] = d.Endpoints[i].Addr
	}
	return all
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
func (v Viewpoint) allows(keys []policy.Key, endpoint *model.PortEndpoint) bool {
	return len(keys) == 0 || slices.ContainsFunc(keys, func(key policy.Key) bool {
		own, carried := v.ownValue(key)
		return carried && v.matches(endpoint, key, own)
	})
}
