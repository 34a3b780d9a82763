package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// demotionCodes are the codes for each model.Why: one for a choice that has only such endpoints, such as OnlyEvacuated, and
// one for an endpoint that others replace, such as NodeEvacuated.
var demotionCodes = func() (codes [model.NumDemotionReasons]struct{ only, spared Code }) {
	for why := range codes {
		name := model.DemotionReason(why).Title()
		codes[why].only, codes[why].spared = Code("Only"+name), Code("Node"+name)
	}
	return codes
}()

// demotionSentences are what these codes say.
func demotionSentences() (all []sentence) {
	for i, codes := range demotionCodes {
		reason := model.DemotionReason(i)
		all = append(all,
			sentence{codes.only, "Every endpoint that may be used runs on a node that " + reason.AllDemotedText() + "."},
			sentence{codes.spared, "The endpoint runs on node {value}, which " + reason.SkippedText() + ", and others serve in its place."})
	}
	return all
}

// withDemotions chooses among the endpoints whose nodes are not avoided, and adds the next level only if that leaves
// none. So keys and hints apply to the endpoints that are left, and a hard key is never widened. If no node answers
// this one, the result is the same as if all did.
func withDemotions(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	answering := filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool { return !endpoint.IsUnreachable() })
	choice := withClusterWideDemotions(answering, choose)
	if len(choice.Endpoints) == 0 && len(answering) < len(endpoints) {
		choice = withClusterWideDemotions(endpoints, choose)
	}
	choice.markDemotedOnly()
	return choice
}

// withClusterWideDemotions looks at what all nodes see alike.
func withClusterWideDemotions(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	for level := model.Rank(0); ; level++ {
		left := filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool { return endpoint.Demotion.ClusterWide().Level() <= level })
		if choice := choose(left); len(choice.Endpoints) > 0 || len(left) == len(endpoints) {
			return choice
		}
	}
}

// markDemotedOnly changes the reason if all of the endpoints are avoided.
func (c *Choice) markDemotedOnly() {
	if len(c.Endpoints) > 0 && c.Endpoints[0].Demotion != nil {
		c.Reason = Reason{Code: demotionCodes[c.Endpoints[0].Demotion.Reason].only, Key: c.Reason.Key, Value: c.Reason.Value}
	}
}

// standbyReason is why others serve in place of an endpoint.
func standbyReason(endpoint *model.PortEndpoint) Reason {
	return Reason{
		Code: demotionCodes[endpoint.Demotion.Reason].spared, Value: endpoint.Node, Until: endpoint.Demotion.Until,
		Since: endpoint.Demotion.Since,
	}
}

// clusterWideView returns the endpoints as all nodes see them, for a plan that all of them have to make alike.
func clusterWideView(endpoints []model.PortEndpoint) []model.PortEndpoint {
	if !slices.ContainsFunc(endpoints, isUnreachable) {
		return endpoints
	}
	seen := slices.Clone(endpoints)
	for i := range seen {
		seen[i].Demotion = seen[i].Demotion.ClusterWide()
	}
	return seen
}

func isUnreachable(endpoint model.PortEndpoint) bool { return endpoint.IsUnreachable() }

// isUnreachableStandby reports whether new connections avoid an endpoint, because its node does not answer this one and others serve
// in its place.
func (d Decision) isUnreachableStandby(endpoint *model.PortEndpoint) bool {
	chosen := d.Selection.Cluster.Endpoints
	return endpoint.IsUnreachable() && len(chosen) > 0 && !chosen[0].IsUnreachable()
}
