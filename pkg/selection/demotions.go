package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// demotionCodes has two codes for each model.DemotionReason: one for a choice that has only such endpoints, such as
// OnlyEvacuated, and one for an endpoint that others replace, such as NodeEvacuated.
var demotionCodes = func() (codes [model.NumDemotionReasons]struct{ only, skipped Code }) {
	for why := range codes {
		name := model.DemotionReason(why).Title()
		codes[why].only, codes[why].skipped = Code("Only"+name), Code("Node"+name)
	}
	return codes
}()

// demotionSentences returns the sentences of these codes.
func demotionSentences() (all []sentence) {
	for i, codes := range demotionCodes {
		reason := model.DemotionReason(i)
		all = append(all,
			sentence{codes.only, "Every endpoint that may be used runs on a node that " + reason.AllDemotedText() + "."},
			sentence{codes.skipped, "The endpoint runs on node {value}, which " + reason.SkippedText() + ", and others serve in its place."})
	}
	return all
}

// withDemotions chooses among the endpoints on nodes that are not demoted, and adds those of the next level of
// demotions only if choose returns no endpoint. So keys and hints apply to the remaining endpoints, and a hard key is
// never widened. If all nodes are unreachable, the result is the same as if none were.
func withDemotions(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	reachable := filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool { return !endpoint.IsUnreachable() })
	choice := withClusterWideDemotions(reachable, choose)
	if len(choice.Endpoints) == 0 && len(reachable) < len(endpoints) {
		choice = withClusterWideDemotions(endpoints, choose)
	}
	choice.markDemotedOnly()
	return choice
}

// withClusterWideDemotions is withDemotions for cluster-wide demotions only.
func withClusterWideDemotions(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	for level := model.Rank(0); ; level++ {
		isEligible := func(endpoint *model.PortEndpoint) bool { return endpoint.Demotion.ClusterWide().Level() <= level }
		eligible := filterEndpoints(endpoints, isEligible)
		if choice := choose(eligible); len(choice.Endpoints) > 0 || len(eligible) == len(endpoints) {
			return choice
		}
	}
}

// markDemotedOnly replaces the reason if all chosen endpoints are demoted.
func (c *Choice) markDemotedOnly() {
	if len(c.Endpoints) > 0 && c.Endpoints[0].Demotion != nil {
		c.Reason = Reason{Code: demotionCodes[c.Endpoints[0].Demotion.Reason].only, Key: c.Reason.Key, Value: c.Reason.Value}
	}
}

// standbyReason returns the reason why other endpoints serve in place of this one.
func standbyReason(endpoint *model.PortEndpoint) Reason {
	return Reason{
		Code: demotionCodes[endpoint.Demotion.Reason].skipped, Value: endpoint.Node, Until: endpoint.Demotion.Until,
		Since: endpoint.Demotion.Since,
	}
}

// clusterWideView returns the endpoints without node-local demotions, for a plan that must be the same on all nodes.
func clusterWideView(endpoints []model.PortEndpoint) []model.PortEndpoint {
	if !slices.ContainsFunc(endpoints, isUnreachable) {
		return endpoints
	}
	view := slices.Clone(endpoints)
	for i := range view {
		view[i].Demotion = view[i].Demotion.ClusterWide()
	}
	return view
}

func isUnreachable(endpoint model.PortEndpoint) bool { return endpoint.IsUnreachable() }

// isUnreachableStandby reports whether new connections avoid an endpoint because its node is unreachable and other
// endpoints serve in its place.
func (d Decision) isUnreachableStandby(endpoint *model.PortEndpoint) bool {
	chosen := d.Selection.Cluster.Endpoints
	return endpoint.IsUnreachable() && len(chosen) > 0 && !chosen[0].IsUnreachable()
}
