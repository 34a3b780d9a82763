package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// The stable codes of the DNS response about a headless Service.
const (
	outcomeServed   = "answer"
	outcomeEmpty    = "empty"
	outcomeRejected = "refuse"
)

// toDNS is the label of names.
const toDNS = "DNS"

// EndpointName formats an endpoint as address:port, or as the address alone if the port is 0.
func EndpointName(endpoint netip.AddrPort) string {
	if endpoint.Port() == 0 {
		return endpoint.Addr().String()
	}
	return endpoint.String()
}

// nameOf returns the name that clients look up: the Service's name, or the port's if it has one.
func nameOf(decision selection.Decision) string {
	service := decision.Service.Name
	name := service.Name + "." + service.Namespace + ".svc"
	if decision.IsOfAddresses || decision.Port.Name == "" {
		return name
	}
	return "_" + decision.Port.Name + "._" + strings.ToLower(decision.Port.Protocol.String()) + "." + name
}

// headlessNames describes the DNS response about a headless Service; zero for any other Service.
type headlessNames struct {
	isHeadless, isReady bool
	families            map[model.Family]bool // in which there are endpoints
}

func newNames(decisions []selection.Decision) headlessNames {
	n := headlessNames{families: map[model.Family]bool{}}
	for i := range decisions {
		n.isHeadless = decisions[i].Service.IsHeadless
		if len(decisions[i].Endpoints) > 0 {
			n.families[decisions[i].Family] = true
		}
		n.isReady = n.isReady || decisions[i].Selection.HasUsableEndpoint
	}
	return n
}

// hasNoFamily reports whether a decision is about a family that a headless Service does not have.
func (n headlessNames) hasNoFamily(decision selection.Decision) bool {
	return n.isHeadless && len(n.families) > 0 && !n.families[decision.Family]
}

// explain completes the explanation of a headless Service.
func (n headlessNames) explain(port *PortReport, decision selection.Decision) {
	if !n.isHeadless {
		return
	}
	if decision.IsOfAddresses {
		port.Protocol = ""
	}
	port.Name = nameOf(decision)
	port.Outcome, port.Message = n.outcome(decision)
}

// outcome returns the DNS response to this node's clients, as a code and a sentence.
func (n headlessNames) outcome(decision selection.Decision) (outcome, message string) {
	const where = "If this node's DNS cache queries the proxy (--dns-bind-address), clients get "
	switch chosen := decision.Selection.Cluster; {
	case len(chosen.Endpoints) == 1:
		return outcomeServed, where + "one endpoint."
	case chosen.Slots != nil:
		return outcomeServed, fmt.Sprintf(
			"%s%d endpoints. Each comes first in proportion to its slots, which is how far DNS can keep a load bound.",
			where, len(chosen.Endpoints))
	case len(chosen.Endpoints) > 0:
		return outcomeServed, fmt.Sprintf("%s%d endpoints, beginning with a random one.", where, len(chosen.Endpoints))
	case n.isReady:
		return outcomeEmpty, where + "an empty response, because the name exists."
	}
	return outcomeRejected, "The proxy refuses the query, so that the cluster's DNS responds: no endpoint is ready."
}
