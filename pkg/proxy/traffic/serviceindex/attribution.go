//go:build linux

package serviceindex

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Proximity is the location of an endpoint relative to this node. The metrics call it locality.
type Proximity uint8

// The values of Proximity. Unknown applies to an endpoint with neither a node nor a zone, and to one on another node if
// this node has no zone.
const (
	Unknown Proximity = iota
	SameNode
	SameZone
	OtherZone
)

// Proximities are all values of Proximity.
var Proximities = [...]Proximity{SameNode, SameZone, OtherZone, Unknown}

// String returns the value of the metric label.
func (p Proximity) String() string {
	return [...]string{Unknown: "unknown", SameNode: "same_node", SameZone: "same_zone", OtherZone: "other_zone"}[p]
}

// Placement is where an endpoint is, and the tier that selects it.
type Placement struct {
	Proximity Proximity
	// Tier is the result of selection.Decision.TierOf.
	Tier string
	// Zone is the endpoint's zone and OwnZone this node's; empty if unknown.
	Zone, OwnZone string
}

// Attribution is the Service of a connection and the placement of its endpoint. Many connections share one; it is
// immutable.
type Attribution struct {
	Service   model.ObjectName
	Placement Placement
}

// attributions are the attributions of connections to one port, by endpoint.
type attributions struct {
	endpoints []endpointEntry // all endpoints of the port, sorted by address
	unknown   *Attribution    // of other endpoints
}

// endpointEntry is an endpoint, its node, and the attribution of connections to it.
type endpointEntry struct {
	addr        netip.AddrPort
	node        string
	attribution *Attribution
}

func newAttributions(d *selection.Decision) *attributions {
	newAttribution := func(placement Placement) *Attribution {
		return &Attribution{Service: d.Service.Name, Placement: placement}
	}
	result := &attributions{
		unknown: newAttribution(Placement{Tier: selection.TierNone}), endpoints: make([]endpointEntry, 0, len(d.Endpoints)),
	}
	shared := map[Placement]*Attribution{}
	for i := range d.Endpoints {
		endpoint := &d.Endpoints[i]
		placement := placementOf(d, endpoint)
		if shared[placement] == nil {
			shared[placement] = newAttribution(placement)
		}
		result.endpoints = append(result.endpoints, endpointEntry{endpoint.Addr, endpoint.Node, shared[placement]})
	}
	slices.SortFunc(result.endpoints, func(a, b endpointEntry) int { return a.addr.Compare(b.addr) })
	return result
}

// find returns an endpoint; nil if the port does not have it.
func (a *attributions) find(endpoint netip.AddrPort) *endpointEntry {
	i, found := slices.BinarySearchFunc(a.endpoints, endpoint,
		func(entry endpointEntry, addr netip.AddrPort) int { return entry.addr.Compare(addr) })
	if !found {
		return nil
	}
	return &a.endpoints[i]
}

// placementOf returns the placement of an endpoint.
func placementOf(decision *selection.Decision, endpoint *model.PortEndpoint) Placement {
	view := decision.Viewpoint
	zone, _ := view.ValueOf(endpoint, policy.Zone)
	placement := Placement{Tier: decision.TierOf(endpoint), Zone: zone, OwnZone: view.Node.Labels[string(policy.Zone)]}
	switch {
	case endpoint.Node != "" && endpoint.Node == view.Node.Name:
		placement.Proximity = SameNode
	case zone == "" || placement.OwnZone == "":
		placement.Proximity = Unknown
	case zone == placement.OwnZone:
		placement.Proximity = SameZone
	default:
		placement.Proximity = OtherZone
	}
	return placement
}

// IsOwnNAT reports whether our tables translated a connection of a dump. Another program may translate connections to
// the address or port of a Service too, even to its endpoints: only the conntrack label distinguishes them. DESTROY
// events carry no labels.
func IsOwnNAT(e *conntrack.Entry) bool {
	return isTranslated(e) && e.HasLabel(ruleset.TranslatedLabel)
}

// isTranslated reports whether a connection was translated in the default conntrack zone. Other zones belong to other
// programs.
func isTranslated(e *conntrack.Entry) bool {
	return e.Status&conntrack.DestinationNAT != 0 && e.Zone == 0
}

// Attribute returns the attribution of a connection in a dump; nil if our tables did not translate it, or if its
// Service is unknown. Removed frontends and endpoints are retained for ten minutes.
func (x *Index) Attribute(e *conntrack.Entry) *Attribution {
	if !IsOwnNAT(e) {
		return nil
	}
	return x.attribute(e, true)
}

// AttributeEnded returns the attribution of a connection in a DESTROY event, from its addresses alone; a dump gives a
// more reliable one. Another program's connection is attributed to a Service if it was sent to the Service's address,
// or to a node port on an address that serves node ports, and went to an endpoint of the Service.
func (x *Index) AttributeEnded(e *conntrack.Entry) *Attribution {
	if !isTranslated(e) || e.ReplySrc() == e.OrigDst() {
		return nil
	}
	return x.attribute(e, false)
}

// attribute returns the attribution of a translated connection. A node port matches on any address, so another program
// may DNAT connections to the same port number. So unless the connection is known to be ours, it must go to an endpoint
// of the Service.
func (x *Index) attribute(e *conntrack.Entry, isOwn bool) *Attribution {
	origDst, endpoint := e.OrigDst(), Endpoint{e.Protocol, e.ReplySrc()}
	frontend := model.Frontend{Addr: origDst.Addr(), Protocol: e.Protocol, Port: origDst.Port()}
	if f := x.lookupRecent(frontend); f != nil {
		return cmp.Or(x.attributionOf(f, endpoint), f.attributions.unknown)
	}
	frontend.Addr = model.AnyAddr(model.FamilyOf(origDst.Addr()))
	switch f := x.lookupRecent(frontend); {
	case f == nil:
		return nil
	case isOwn:
		return cmp.Or(x.attributionOf(f, endpoint), f.attributions.unknown)
	case x.Snapshot().Scope.MayServeNodePorts(origDst.Addr()):
		return x.attributionOf(f, endpoint)
	}
	return nil
}

// lookupRecent returns a frontend of the current snapshot, or else the one that was removed most recently; nil if there
// is neither.
func (x *Index) lookupRecent(frontend model.Frontend) *Frontend {
	if snapshot := x.Snapshot(); snapshot != nil {
		if f := snapshot.frontend(frontend); f != nil {
			return f
		}
	}
	former, _ := x.formerFrontends.get(frontend)
	return former.value
}

// ChangedFrontend returns the frontend that a UDP flow was sent to, or nil if it has not changed since the sync with
// number after. It may be a current frontend, or a removed one, which has no allowed endpoints. A frontend with its own
// address takes precedence over a node port.
func (x *Index) ChangedFrontend(s *Snapshot, origDst netip.AddrPort, after uint64) *Frontend {
	for _, addr := range [...]netip.Addr{origDst.Addr(), model.AnyAddr(model.FamilyOf(origDst.Addr()))} {
		frontend := model.Frontend{Addr: addr, Protocol: model.UDP, Port: origDst.Port()}
		if f := s.frontend(frontend); f != nil {
			if s.isChanged(f, after) {
				return f
			}
			return nil
		}
		if former, isKnown := x.formerFrontends.get(frontend); isKnown && former.value.lastChanged > after {
			return former.value
		}
	}
	return nil
}

// HadEndpoint reports whether a frontend has or had an endpoint, in whatever state, including the endpoints of the
// Service that owned the frontend before.
func (x *Index) HadEndpoint(f *Frontend, endpoint netip.AddrPort) bool {
	if x.hadEndpoint(f, endpoint) {
		return true
	}
	former, isKnown := x.formerFrontends.get(f.Frontend)
	return isKnown && x.hadEndpoint(former.value, endpoint)
}

func (x *Index) hadEndpoint(f *Frontend, endpoint netip.AddrPort) bool {
	_, isFormer := x.formerEndpoints.get(formerKey{f.Service, Endpoint{f.Port.Protocol, endpoint}})
	return isFormer || f.HasEndpoint(endpoint)
}

// attributionOf returns the attribution of connections to an endpoint that the frontend has or had.
func (x *Index) attributionOf(f *Frontend, endpoint Endpoint) *Attribution {
	if found := f.attributions.find(endpoint.Addr); found != nil {
		return found.attribution
	}
	if former, isKnown := x.formerEndpoints.get(formerKey{f.Service, endpoint}); isKnown {
		return former.value
	}
	if formerFrontend, isKnown := x.formerFrontends.get(f.Frontend); isKnown && formerFrontend.value.Service == f.Service {
		if found := formerFrontend.value.attributions.find(endpoint.Addr); found != nil {
			return found.attribution
		}
	}
	return nil
}
