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
	outcomeServed  = "answer"
	outcomeEmpty   = "empty"
	outcomeRefused = "refuse"
)

// toDNS is the label of a DNS name in the text.
const toDNS = "DNS"

// EndpointName formats an endpoint as address:port, or as the address alone if the port is 0.
func EndpointName(endpoint netip.AddrPort) string {
	if endpoint.Port() == 0 {
		return endpoint.Addr().String()
	}
	return endpoint.String()
}

// dnsName returns the name that clients look up: the Service's name, or the port's if it has one.
func dnsName(decision selection.Decision) string {
	service := decision.Service.Name
	name := service.Name + "." + service.Namespace + ".svc"
	if decision.ForAddresses || decision.Port.Name == "" {
		return name
	}
	return "_" + decision.Port.Name + "._" + strings.ToLower(decision.Port.Protocol.String()) + "." + name
}

// headlessDNS describes the DNS response about a headless Service; zero for any other Service.
type headlessDNS struct {
	isHeadless, hasUsableEndpoint bool
	families                      map[model.Family]bool // in which there are endpoints
}

func newHeadlessDNS(decisions []selection.Decision) headlessDNS {
	h := headlessDNS{families: map[model.Family]bool{}}
	for i := range decisions {
		h.isHeadless = decisions[i].Service.IsHeadless
		if len(decisions[i].Endpoints) > 0 {
			h.families[decisions[i].Family] = true
		}
		h.hasUsableEndpoint = h.hasUsableEndpoint || decisions[i].Selection.HasUsableEndpoint
	}
	return h
}

// lacksFamily reports whether a decision is about a family that a headless Service does not have.
func (h headlessDNS) lacksFamily(decision selection.Decision) bool {
	return h.isHeadless && len(h.families) > 0 && !h.families[decision.Family]
}

// complete completes the explanation of a headless Service.
func (h headlessDNS) complete(port *PortReport, decision selection.Decision) {
	if !h.isHeadless {
		return
	}
	if decision.ForAddresses {
		port.Protocol = ""
	}
	port.Name = dnsName(decision)
	port.Outcome, port.Message = h.outcome(decision)
}

// outcome returns the DNS response to this node's clients, as a code and a sentence.
func (h headlessDNS) outcome(decision selection.Decision) (outcome, message string) {
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
	case h.hasUsableEndpoint:
		return outcomeEmpty, where + "an empty response, because the name exists."
	}
	return outcomeRefused, "The proxy refuses the query, so that the cluster's DNS responds: no endpoint is ready."
}
