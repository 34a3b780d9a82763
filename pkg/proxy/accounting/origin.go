//go:build linux

package accounting

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Locality is where an endpoint is, seen from this node.
type Locality uint8

// The localities. Unknown is what has neither a node nor a zone, or has another node while this one has no zone.
const (
	Unknown Locality = iota
	SameNode
	SameZone
	OtherZone
)

// Localities are all of them.
var Localities = [...]Locality{SameNode, SameZone, OtherZone, Unknown}

// String returns the value of the label.
func (l Locality) String() string {
	return [...]string{Unknown: "unknown", SameNode: "same_node", SameZone: "same_zone", OtherZone: "other_zone"}[l]
}

// Place is where an endpoint is, and why connections go there.
type Place struct {
	Locality Locality
	// Tier is what selection.Decision.TierOf returns.
	Tier string
	// Zone is the endpoint's, and OwnZone this node's; empty if unknown.
	Zone, OwnZone string
}

// Origin is whose a connection is: that of a Service, to an endpoint at a place. Many connections share one; it never
// changes.
type Origin struct {
	Service model.ObjectName
	// Reserved: the Service has a place among those that are named.
	Reserved bool
	Place    Place
}

// nowhere is the place of an endpoint that nobody knows.
var nowhere = Place{Tier: selection.TierNone}

// placeOf returns where an endpoint is.
func placeOf(decision *selection.Decision, endpoint *model.PortEndpoint) Place {
	view := decision.Viewpoint
	zone, _ := view.ValueOf(endpoint, policy.Zone)
	place := Place{Tier: decision.TierOf(endpoint), Zone: zone, OwnZone: view.Node.Labels[string(policy.Zone)]}
	switch {
	case endpoint.Node != "" && endpoint.Node == view.Node.Name:
		place.Locality = SameNode
	case zone == "" || place.OwnZone == "":
		place.Locality = Unknown
	case zone == place.OwnZone:
		place.Locality = SameZone
	default:
		place.Locality = OtherZone
	}
	return place
}
