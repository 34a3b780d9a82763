package selection

import "github.com/vicinity-proxy/vicinity/pkg/model"

// What TierOf says beside topology keys.
const (
	TierHint = "hint"
	TierNone = "none"
)

// TierOf returns why a connection from this node goes to an endpoint, in one word: the first topology key that matches
// it, where there are keys; TierHint, where hints narrow the choice and it is chosen; TierNone otherwise. Under a bound on
// the load the slots are of several tiers, and each endpoint is of its own.
func (d Decision) TierOf(endpoint *model.PortEndpoint) string {
	for _, key := range d.Service.Topology.Keys {
		if own, carried := d.Viewpoint.ownValue(key); carried && d.Viewpoint.matches(endpoint, key, own) {
			return string(key)
		}
	}
	if tier := d.Selection.Cluster.Tier; tier == TierForNodes || tier == TierForZones {
		return TierHint
	}
	return TierNone
}
