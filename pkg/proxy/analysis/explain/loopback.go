package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// outcomeUnserved is the outcome if the proxy does not handle the dialled address.
const outcomeUnserved = "unserved"

// loopback describes connections of this node to a node port on loopback; false if the port has none. Without
// kube-proxy's gate the proxy does not handle them, and they are described only if the query dials them.
func (c Clients) loopback(decision selection.Decision, dialled netip.AddrPort) (Traffic, bool) {
	addr, _ := c.NodePorts.Loopback(decision.Family)
	if dialled.IsValid() {
		addr = dialled.Addr()
	}
	index := slices.IndexFunc(decision.Frontends, func(frontend model.PortFrontend) bool { return frontend.Kind == model.NodePort })
	if index < 0 || !addr.IsLoopback() || !dialled.IsValid() && !c.NodePorts.Localhost {
		return Traffic{}, false
	}
	frontend := netip.AddrPortFrom(addr, decision.Frontends[index].Port).String()
	traffic := Traffic{To: toLoopback, From: fromNode, Frontends: []string{frontend}, Choice: choiceCluster}
	if decision.Service.ExternalTrafficLocal {
		traffic.Choice = choiceLocal
	}
	traffic.Outcome, traffic.Message = c.unservedReason(decision, addr)
	if traffic.Outcome != "" {
		traffic.Message = fmt.Sprintf("Connections to %s %s.", frontend, traffic.Message)
		return traffic, true
	}
	return servedOnLoopback(traffic, decision), true
}

// unservedReason returns why the proxy does not listen for a port on a loopback address, and what happens there instead;
// nothing if it does listen.
func (c Clients) unservedReason(decision selection.Decision, addr netip.Addr) (outcome, message string) {
	refuse := outcomeNames[selection.Refuse]
	switch served, isServed := c.NodePorts.Loopback(decision.Family); {
	case !c.NodePorts.Localhost:
		return outcomeUnserved, "match no rule of the proxy: another program may serve them. Node ports are served there with the feature " +
			"gate KubeProxyNFTablesLocalhostNodePorts and localhost in nodePortAddresses, over TCP only"
	case decision.Port.Protocol != model.TCP:
		return refuse, "are refused and counted, because the proxy serves only TCP on loopback"
	case !isServed:
		return refuse, fmt.Sprintf("are refused and counted, because nodePortAddresses names no %s loopback address", decision.Family)
	case addr != served:
		return outcomeUnserved, fmt.Sprintf("match no rule of the proxy, which listens only on %s: another program may serve them", served)
	}
	return "", ""
}

// servedOnLoopback completes the description of connections that the proxy itself accepts. Without an endpoint it does
// not listen, so they are refused rather than dropped.
func servedOnLoopback(traffic Traffic, decision selection.Decision) Traffic {
	path := trafficPath{subject: "New connections to " + traffic.Frontends[0], source: nodeMasqueraded}
	if decision.Service.ExternalTrafficLocal {
		path.policy = "externalTrafficPolicy"
	}
	choice, outcome := decision.Selection.External()
	if outcome == selection.Drop {
		traffic.Outcome = outcomeNames[selection.Refuse]
		traffic.Message = path.subject + " are refused at once, because externalTrafficPolicy is Local and every usable endpoint is on " +
			"another node."
		return traffic
	}
	traffic = path.describe(traffic, choice, outcome)
	if outcome == selection.Balance {
		traffic.Message += " They end with the proxy."
	}
	return traffic
}
