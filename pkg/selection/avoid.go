package selection

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// avoided are the codes for each model.Why: one for a choice that has only such endpoints, such as OnlyEvacuated, and
// one for an endpoint that others replace, such as NodeEvacuated.
var avoided = func() (codes [model.Whys]struct{ only, spared Code }) {
	for why := range codes {
		name := model.Why(why).Name()
		codes[why].only, codes[why].spared = Code("Only"+name), Code("Node"+name)
	}
	return codes
}()

// avoidedSentences are what these codes say.
func avoidedSentences() (all []sentence) {
	for i, codes := range avoided {
		why := model.Why(i)
		all = append(all,
			sentence{codes.only, "Every endpoint that may be used runs on a node that " + why.Only() + "."},
			sentence{codes.spared, "The endpoint runs on node {value}, which " + why.Spared() + ", and others serve in its place."})
	}
	return all
}

// preferOthers chooses among the endpoints whose nodes are not avoided, and adds the next level only if that leaves
// none. So keys and hints apply to the endpoints that are left, and a hard key is never widened. If no node answers
// this one, the result is the same as if all did.
func preferOthers(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	answering := pick(endpoints, func(endpoint *model.PortEndpoint) bool { return !endpoint.IsUnreachable() })
	choice := preferStaying(answering, choose)
	if len(choice.Endpoints) == 0 && len(answering) < len(endpoints) {
		choice = preferStaying(endpoints, choose)
	}
	choice.noteAvoided()
	return choice
}

// preferStaying looks at what all nodes see alike.
func preferStaying(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	for level := model.Rank(0); ; level++ {
		left := pick(endpoints, func(endpoint *model.PortEndpoint) bool { return endpoint.Avoid.SeenByAll().Level() <= level })
		if choice := choose(left); len(choice.Endpoints) > 0 || len(left) == len(endpoints) {
			return choice
		}
	}
}

// noteAvoided changes the reason if all of the endpoints are avoided.
func (c *Choice) noteAvoided() {
	if len(c.Endpoints) > 0 && c.Endpoints[0].Avoid != nil {
		c.Reason = Reason{Code: avoided[c.Endpoints[0].Avoid.Why].only, Key: c.Reason.Key, Value: c.Reason.Value}
	}
}

// whySpared is why others serve in place of an endpoint.
func whySpared(endpoint *model.PortEndpoint) Reason {
	return Reason{
		Code: avoided[endpoint.Avoid.Why].spared, Value: endpoint.Node, Until: endpoint.Avoid.Until, Since: endpoint.Avoid.Since,
	}
}

// asSeenByAll returns the endpoints as all nodes see them, for a plan that all of them have to make alike.
func asSeenByAll(endpoints []model.PortEndpoint) []model.PortEndpoint {
	if !slices.ContainsFunc(endpoints, isUnreachable) {
		return endpoints
	}
	seen := slices.Clone(endpoints)
	for i := range seen {
		seen[i].Avoid = seen[i].Avoid.SeenByAll()
	}
	return seen
}

func isUnreachable(endpoint model.PortEndpoint) bool { return endpoint.IsUnreachable() }

// isLeft reports whether new connections avoid an endpoint, because its node does not answer this one and others serve
// in its place.
func (d Decision) isLeft(endpoint *model.PortEndpoint) bool {
	chosen := d.Selection.Cluster.Endpoints
	return endpoint.IsUnreachable() && len(chosen) > 0 && !chosen[0].IsUnreachable()
}
