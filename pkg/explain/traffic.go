package explain

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// The stable words of a Traffic.
const (
	toClusterIP = "ClusterIP"
	toExternal  = "external"

	fromEverybody = "everybody"
	fromOutside   = "outside"
	fromInside    = "inside"

	choiceCluster = "cluster"
	choiceLocal   = "local"

	sourceKept        = "kept"
	sourceMasqueraded = "masqueraded"
	sourceKeptForPods = "keptForPods"
)

// traffic says what happens to connections to the frontends that lead to the port, the ClusterIP first.
func traffic(decision selection.Decision) []Traffic {
	var clusterIP, external []string
	for _, frontend := range decision.Owned {
		if decision.Service.KindOf(frontend) == model.ClusterIP {
			clusterIP = append(clusterIP, addressOf(frontend))
		} else {
			external = append(external, addressOf(frontend))
		}
	}
	var list []Traffic
	if len(clusterIP) > 0 {
		list = append(list, clusterIPTraffic(decision, clusterIP))
	}
	if len(external) > 0 {
		list = append(list, externalTraffic(decision, external)...)
	}
	return list
}

func clusterIPTraffic(decision selection.Decision, frontends []string) Traffic {
	path := path{subject: "New connections to the ClusterIP"}
	if decision.Service.InternalTrafficLocal {
		path.policy = "internalTrafficPolicy"
	}
	choice, outcome := decision.Selection.ClusterIP()
	return path.tell(Traffic{To: toClusterIP, From: fromEverybody, Frontends: frontends}, choice, outcome)
}

// externalTraffic tells clients outside from those inside only where something different happens to them. With
// externalTrafficPolicy Cluster everything is masqueraded, because the answers must come back through this node; with Local only
// what this node itself sends is (KEP-2086 and kube-proxy's packet matrix).
func externalTraffic(decision selection.Decision, frontends []string) []Traffic {
	everybody := path{subject: "New connections to the external frontends", source: sourceMasqueraded}
	insideChoice, insideOutcome := decision.Selection.ShortCircuit()
	outsideChoice, outsideOutcome := decision.Selection.External()
	all := Traffic{To: toExternal, From: fromEverybody, Frontends: frontends}
	if !decision.Service.ExternalTrafficLocal || insideOutcome == selection.Refuse && outsideOutcome == selection.Refuse {
		return []Traffic{everybody.tell(all, insideChoice, insideOutcome)}
	}
	fromThere := path{subject: "New connections from outside", policy: "externalTrafficPolicy", source: sourceKept}
	fromHere := path{subject: "New connections from pods and this node", source: sourceKeptForPods}
	outside, inside := all, all
	outside.From, inside.From = fromOutside, fromInside
	return []Traffic{
		fromThere.tell(outside, outsideChoice, outsideOutcome),
		fromHere.tell(inside, insideChoice, insideOutcome),
	}
}
