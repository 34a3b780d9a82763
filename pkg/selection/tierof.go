package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The results of TierOf other than topology keys.
const (
	TierHint = "hint"
	TierNone = "none"
)

// TierOf returns why a connection from this node goes to an endpoint, as a label value: the first topology key that
// matches it, if there are keys; TierHint if hints narrow the choice and one is for this node or its zone; TierNone
// otherwise. With a load bound, slots may belong to several tiers, and each endpoint has its own tier.
func (d Decision) TierOf(endpoint *model.PortEndpoint) string {
	viewpoint, keys := &d.Viewpoint, d.Service.Topology.Keys
	if k := viewpoint.firstMatch(keys, endpoint); k < len(keys) {
		return string(keys[k])
	}
	switch d.Selection.Cluster.Tier {
	case TierForNodes:
		if slices.Contains(endpoint.HintNodes, viewpoint.Node.Name) {
			return TierHint
		}
	case TierForZones:
		if slices.Contains(endpoint.HintZones, viewpoint.Node.Labels[string(policy.Zone)]) {
			return TierHint
		}
	}
	return TierNone
}
