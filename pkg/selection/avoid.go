package selection

import "github.com/vicinity-proxy/vicinity/pkg/model"

// avoided are the reasons for each model.Why: of a choice that has nothing else, and of an endpoint in whose place others
// serve.
var avoided = [model.Whys]struct{ only, spared Code }{
	model.Evacuated: {only: OnlyEvacuated, spared: NodeEvacuated},
}

// preferOthers chooses among the endpoints against whose nodes there is nothing, and among those of each next level, too,
// only if that leaves none. So all that keys and hints mean, they mean among those that are left, and a hard key is never
// widened.
func preferOthers(endpoints []model.PortEndpoint, choose func([]model.PortEndpoint) Choice) Choice {
	for level := model.Rank(0); ; level++ {
		left := pick(endpoints, func(endpoint *model.PortEndpoint) bool { return endpoint.Avoid.Level() <= level })
		choice := choose(left)
		if len(choice.Endpoints) > 0 || len(left) == len(endpoints) {
			choice.noteAvoided()
			return choice
		}
	}
}

// noteAvoided has the reason say that there is something against all of the endpoints, if there is.
func (c *Choice) noteAvoided() {
	if len(c.Endpoints) > 0 && c.Endpoints[0].Avoid != nil {
		c.Reason = Reason{Code: avoided[c.Endpoints[0].Avoid.Why].only, Key: c.Reason.Key, Value: c.Reason.Value}
	}
}

// whySpared is why others serve in place of an endpoint.
func whySpared(endpoint *model.PortEndpoint) Reason {
	return Reason{Code: avoided[endpoint.Avoid.Why].spared, Value: endpoint.Node, Until: endpoint.Avoid.Until}
}
