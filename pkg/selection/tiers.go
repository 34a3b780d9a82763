package selection

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Tier is a group of endpoints among which a client balances while the tiers before it are unavailable.
type Tier struct {
	Endpoints []model.PortEndpoint
	// Slots is the number of slots of each of the Endpoints. nil means one each.
	Slots []int
}

// Tiers returns the endpoints that serve connections to the ClusterIP, then those that would serve if all of these
// failed, and so on. No endpoint is in two tiers. The first tier is that of the kernel's table. There are no tiers if
// the table refuses or drops connections.
//
// The tiers are in the owner's order. No tier follows the last of hard keys, or a choice that a policy keeps on this
// node. The endpoints of nodes that are being evacuated follow all others. A terminating endpoint never follows a ready
// one: it may be gone before a client falls back to it. A load bound holds only in the first tier: it is a plan for all
// nodes, not for a failure that a single client sees.
func (d Decision) Tiers() []Tier {
	choice, outcome := d.Selection.ClusterIP()
	if outcome != Balance {
		return nil
	}
	tiers := []Tier{{Endpoints: choice.Endpoints, Slots: choice.Slots}}
	if d.Selection.internalLocal {
		return tiers
	}
	if keys := d.Service.Topology.Keys; len(keys) > 0 {
		return append(tiers, d.Viewpoint.tiersByKeys(keys, fallbackCandidates(d.Endpoints, choice.Endpoints))...)
	}
	for rest := d.Endpoints; ; {
		rest = fallbackCandidates(rest, choice.Endpoints)
		if choice = selectCluster(d.Service, rest, d.Viewpoint); len(choice.Endpoints) == 0 {
			return tiers
		}
		tiers = append(tiers, Tier{Endpoints: choice.Endpoints})
	}
}

// fallbackCandidates returns the endpoints that may be in a tier after the given one.
func fallbackCandidates(endpoints, tier []model.PortEndpoint) []model.PortEndpoint {
	taken := make(map[netip.AddrPort]bool, len(tier))
	for i := range tier {
		taken[tier[i].Addr] = true
	}
	isTierReady := tier[0].Phase() == model.PhaseReady
	return filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool {
		return !taken[endpoint.Addr] && (!isTierReady || endpoint.Phase() == model.PhaseReady)
	})
}

// tiersByKeys returns the same as choosing by the keys repeatedly, each time without the endpoints chosen before. It
// iterates over the endpoints only once, because users may write many keys.
func (v NodeView) tiersByKeys(keys []policy.Key, endpoints []model.PortEndpoint) []Tier {
	matching := make([]Tier, model.NumRanks*len(keys))
	for i := range endpoints {
		endpoint := &endpoints[i]
		rank, usable := endpoint.Rank()
		if !usable {
			continue
		}
		if k := v.firstMatch(keys, endpoint); k < len(keys) {
			tier := &matching[int(rank)*len(keys)+k]
			tier.Endpoints = append(tier.Endpoints, *endpoint)
		}
	}
	var tiers []Tier
	hasReadyTier := false
	for _, tier := range matching {
		if len(tier.Endpoints) == 0 || hasReadyTier && tier.Endpoints[0].Phase() != model.PhaseReady {
			continue
		}
		hasReadyTier = hasReadyTier || tier.Endpoints[0].Phase() == model.PhaseReady
		tiers = append(tiers, tier)
	}
	return tiers
}
