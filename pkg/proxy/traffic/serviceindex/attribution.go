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

// Locality is the location of an endpoint relative to this node.
type Locality uint8

// The localities. Unknown is the locality of an endpoint with neither a node nor a zone, and of one on another node if
// this node has no zone.
const (
	Unknown Locality = iota
	SameNode
	SameZone
	OtherZone
)

// Localities are all localities.
var Localities = [...]Locality{SameNode, SameZone, OtherZone, Unknown}

// String returns the value of the metric label.
func (l Locality) String() string {
	return [...]string{Unknown: "unknown", SameNode: "same_node", SameZone: "same_zone", OtherZone: "other_zone"}[l]
}

// Location is the location of an endpoint, and the tier that selects it.
type Location struct {
	Locality Locality
	// Tier is the result of selection.Decision.TierOf.
	Tier string
	// Zone is the endpoint's zone and OwnZone this node's; empty if unknown.
	Zone, OwnZone string
}

// Attribution is the Service of a connection and the location of its endpoint. Many connections share one; it is
// immutable.
type Attribution struct {
	Service  model.ObjectName
	Location Location
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
	newAttribution := func(location Location) *Attribution {
		return &Attribution{Service: d.Service.Name, Location: location}
	}
	result := &attributions{unknown: newAttribution(Location{Tier: selection.TierNone}), endpoints: make([]endpointEntry, 0, len(d.Endpoints))}
	shared := map[Location]*Attribution{}
	for i := range d.Endpoints {
		endpoint := &d.Endpoints[i]
		location := locationOf(d, endpoint)
		if shared[location] == nil {
			shared[location] = newAttribution(location)
		}
		result.endpoints = append(result.endpoints, endpointEntry{endpoint.Addr, endpoint.Node, shared[location]})
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

// locationOf returns the location of an endpoint.
func locationOf(decision *selection.Decision, endpoint *model.PortEndpoint) Location {
	view := decision.Viewpoint
	zone, _ := view.ValueOf(endpoint, policy.Zone)
	location := Location{Tier: decision.TierOf(endpoint), Zone: zone, OwnZone: view.Node.Labels[string(policy.Zone)]}
	switch {
	case endpoint.Node != "" && endpoint.Node == view.Node.Name:
		location.Locality = SameNode
	case zone == "" || location.OwnZone == "":
		location.Locality = Unknown
	case zone == location.OwnZone:
		location.Locality = SameZone
	default:
		location.Locality = OtherZone
	}
	return location
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
// more reliable one. Another program's connection is attributed to a Service if it was sent to the Service's address, or
// to a node port on an address that serves node ports, and went to an endpoint of the Service.
func (x *Index) AttributeEnded(e *conntrack.Entry) *Attribution {
	if !isTranslated(e) || e.ReplySrc() == e.OrigDst() {
		return nil
	}
	return x.attribute(e, false)
}

// attribute returns the attribution of a translated connection. A node port has a port number but no address, and other
// programs may translate the same number. So unless the connection is known to be ours, it must go to an endpoint of
// the Service.
func (x *Index) attribute(e *conntrack.Entry, isOwn bool) *Attribution {
	dialled, endpoint := e.OrigDst(), Endpoint{e.Protocol, e.ReplySrc()}
	frontend := model.Frontend{Addr: dialled.Addr(), Protocol: e.Protocol, Port: dialled.Port()}
	if f := x.lookupRecent(frontend); f != nil {
		return cmp.Or(x.attributionOf(f, endpoint), f.attributions.unknown)
	}
	frontend.Addr = model.AnyAddr(model.FamilyOf(dialled.Addr()))
	switch f := x.lookupRecent(frontend); {
	case f == nil:
		return nil
	case isOwn:
		return cmp.Or(x.attributionOf(f, endpoint), f.attributions.unknown)
	case x.Snapshot().Scope.MayServeNodePorts(dialled.Addr()):
		return x.attributionOf(f, endpoint)
	}
	return nil
}

// lookupRecent returns a frontend of the current snapshot, or else the last former one; nil if there is neither.
func (x *Index) lookupRecent(frontend model.Frontend) *Frontend {
	if snapshot := x.Snapshot(); snapshot != nil {
		if f := snapshot.frontend(frontend); f != nil {
			return f
		}
	}
	former, _ := x.formerFrontends.get(frontend)
	return former.value
}

// OwnerOfFlow returns the frontend to which a UDP flow was sent, if it changed after the sync with the given number: an
// applied one, or one that was removed since and that no endpoint may serve. A frontend with an address of its own
// precedes a node port.
func (x *Index) OwnerOfFlow(s *Snapshot, dialled netip.AddrPort, after uint64) *Frontend {
	for _, addr := range [...]netip.Addr{dialled.Addr(), model.AnyAddr(model.FamilyOf(dialled.Addr()))} {
		frontend := model.Frontend{Addr: addr, Protocol: model.UDP, Port: dialled.Port()}
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
