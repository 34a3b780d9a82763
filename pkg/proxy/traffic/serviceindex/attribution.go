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
	addr   netip.AddrPort
	node   string
	origin *Attribution
}

func newAttributions(d *selection.Decision) *attributions {
	origin := func(location Location) *Attribution {
		return &Attribution{Service: d.Service.Name, Location: location}
	}
	o := &attributions{unknown: origin(Location{Tier: selection.TierNone}), endpoints: make([]endpointEntry, 0, len(d.Endpoints))}
	shared := map[Location]*Attribution{}
	for i := range d.Endpoints {
		endpoint := &d.Endpoints[i]
		location := locationOf(d, endpoint)
		if shared[location] == nil {
			shared[location] = origin(location)
		}
		o.endpoints = append(o.endpoints, endpointEntry{endpoint.Addr, endpoint.Node, shared[location]})
	}
	slices.SortFunc(o.endpoints, func(a, b endpointEntry) int { return a.addr.Compare(b.addr) })
	return o
}

// find returns an endpoint; nil if the port does not have it.
func (o *attributions) find(endpoint netip.AddrPort) *endpointEntry {
	at, found := slices.BinarySearchFunc(o.endpoints, endpoint, func(l endpointEntry, addr netip.AddrPort) int { return l.addr.Compare(addr) })
	if !found {
		return nil
	}
	return &o.endpoints[at]
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
func (r *Index) Attribute(e *conntrack.Entry) *Attribution {
	if !IsOwnNAT(e) {
		return nil
	}
	return r.origin(e, true)
}

// OfEnded returns the attribution of a connection in a DESTROY event, from its addresses alone; a dump gives a more
// reliable one. Another program's connection is attributed to a Service if it was sent to the Service's address, or to
// a node port on an address that serves node ports, and went to an endpoint of the Service.
func (r *Index) OfEnded(e *conntrack.Entry) *Attribution {
	if !isTranslated(e) || e.ReplySrc() == e.OrigDst() {
		return nil
	}
	return r.origin(e, false)
}

// origin returns the attribution of a translated connection. A node port has a port number but no address, and other
// programs may translate the same number. So unless the connection is known to be ours, it must go to an endpoint of
// the Service.
func (r *Index) origin(e *conntrack.Entry, isOurs bool) *Attribution {
	dialled, endpoint := e.OrigDst(), Endpoint{e.Protocol, e.ReplySrc()}
	frontend := model.Frontend{Addr: dialled.Addr(), Protocol: e.Protocol, Port: dialled.Port()}
	if f := r.lookupRecent(frontend); f != nil {
		return cmp.Or(r.attributionOf(f, endpoint), f.origins.unknown)
	}
	frontend.Addr = model.AnyAddr(model.FamilyOf(dialled.Addr()))
	switch f := r.lookupRecent(frontend); {
	case f == nil:
		return nil
	case isOurs:
		return cmp.Or(r.attributionOf(f, endpoint), f.origins.unknown)
	case r.Snapshot().Scope.MayServeNodePorts(dialled.Addr()):
		return r.attributionOf(f, endpoint)
	}
	return nil
}

// lookupRecent returns a frontend of the current snapshot, or the last former one.
func (r *Index) lookupRecent(frontend model.Frontend) *Frontend {
	if snapshot := r.Snapshot(); snapshot != nil {
		if f := snapshot.frontend(frontend); f != nil {
			return f
		}
	}
	former, _ := r.formerFrontends.get(frontend)
	return former.value
}

// OwnerOfFlow returns the frontend to which a UDP flow was sent, if it changed after the sync with the given number: an
// applied one, or one that was removed since and that no endpoint may serve. A frontend with an address of its own
// precedes a node port.
func (r *Index) OwnerOfFlow(s *Snapshot, dialled netip.AddrPort, after uint64) *Frontend {
	for _, addr := range [...]netip.Addr{dialled.Addr(), model.AnyAddr(model.FamilyOf(dialled.Addr()))} {
		frontend := model.Frontend{Addr: addr, Protocol: model.UDP, Port: dialled.Port()}
		if f := s.frontend(frontend); f != nil {
			if s.isChanged(f, after) {
				return f
			}
			return nil
		}
		if former, isKnown := r.formerFrontends.get(frontend); isKnown && former.value.changed > after {
			return former.value
		}
	}
	return nil
}

// HadEndpoint reports whether a frontend has or had an endpoint, in whatever state, including the endpoints of the
// Service that owned the frontend before.
func (r *Index) HadEndpoint(f *Frontend, endpoint netip.AddrPort) bool {
	if r.hadEndpoint(f, endpoint) {
		return true
	}
	former, isKnown := r.formerFrontends.get(f.Frontend)
	return isKnown && r.hadEndpoint(former.value, endpoint)
}

func (r *Index) hadEndpoint(f *Frontend, endpoint netip.AddrPort) bool {
	_, hasLeft := r.formerEndpoints.get(formerKey{f.Service, Endpoint{f.Port.Protocol, endpoint}})
	return hasLeft || f.origins.find(endpoint) != nil
}

// attributionOf returns the attribution of connections to an endpoint that the frontend has or had.
func (r *Index) attributionOf(f *Frontend, endpoint Endpoint) *Attribution {
	if found := f.origins.find(endpoint.Addr); found != nil {
		return found.origin
	}
	if left, isKnown := r.formerEndpoints.get(formerKey{f.Service, endpoint}); isKnown {
		return left.value
	}
	if before, isKnown := r.formerFrontends.get(f.Frontend); isKnown && before.value.Service == f.Service {
		if found := before.value.origins.find(endpoint.Addr); found != nil {
			return found.origin
		}
	}
	return nil
}
