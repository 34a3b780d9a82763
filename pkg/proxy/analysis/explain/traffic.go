package explain

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// The stable codes of a Traffic.
const (
	toClusterIP = "ClusterIP"
	toExternal  = "external"
	toLoopback  = "loopback"
	toAddress   = "address"

	fromAll     = "everybody"
	fromOutside = "outside"
	fromInside  = "inside"
	fromNode    = "node"

	choiceCluster = "cluster"
	choiceLocal   = "local"
)

// traffic describes connections to the frontends that lead to the port, the ClusterIP first.
func (c Clients) traffic(decision selection.Decision) []Traffic {
	var clusterIP, external []string
	for _, frontend := range decision.Frontends {
		if frontend.Kind == model.ClusterIP {
			clusterIP = append(clusterIP, addressOf(frontend.Frontend))
		} else {
			external = append(external, addressOf(frontend.Frontend))
		}
	}
	list := []Traffic{}
	if len(clusterIP) > 0 {
		list = append(list, c.clusterIPTraffic(decision, clusterIP))
	}
	if len(external) > 0 {
		list = append(list, c.externalTraffic(decision, external)...)
	}
	return list
}

func (c Clients) clusterIPTraffic(decision selection.Decision, frontends []string) Traffic {
	path := trafficPath{subject: "New connections to the ClusterIP", source: c.clusterIPSource()}
	if decision.Service.InternalTrafficLocal {
		path.policy = "internalTrafficPolicy"
	}
	choice, outcome := decision.Selection.ClusterIP()
	return path.describe(Traffic{To: toClusterIP, From: fromAll, Frontends: frontends}, choice, outcome)
}

// externalTraffic separates clients outside from those inside only if they are treated differently. Clients outside are
// refused only if there is no endpoint in the cluster, and then all clients are. With externalTrafficPolicy Cluster
// everything is masqueraded, because the replies must come back through this node.
func (c Clients) externalTraffic(decision selection.Decision, frontends []string) []Traffic {
	uniform := trafficPath{subject: "New connections to the external frontends", source: masqueraded}
	insideChoice, insideOutcome := decision.Selection.ShortCircuit()
	outsideChoice, outsideOutcome := decision.Selection.External()
	all := Traffic{To: toExternal, From: fromAll, Frontends: frontends}
	if !decision.Service.ExternalTrafficLocal || outsideOutcome == selection.Refuse {
		return []Traffic{uniform.describe(all, insideChoice, insideOutcome)}
	}
	outside, inside := all, all
	outside.From, inside.From = fromOutside, fromInside
	return []Traffic{
		c.outsidePath(decision.Family).describe(outside, outsideChoice, outsideOutcome),
		c.insidePath(decision.Family).describe(inside, insideChoice, insideOutcome),
	}
}
