package explain

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// buildReport explains a decision of the cluster's own node. If a frontend is dialled, it names only that one.
func (c Clients) buildReport(cluster *model.Cluster, decision selection.Decision, dialled dialledAddress) PortReport {
	service := decision.Service
	port := PortReport{
		Node:            decision.Viewpoint.Node.Name,
		Service:         service.Name.String(),
		Port:            decision.Port.Name,
		Number:          int(decision.Port.Port),
		Protocol:        decision.Port.Protocol.String(),
		Family:          decision.Family.String(),
		Frontends:       describeFrontends(decision.Frontends),
		LostFrontends:   describeLostFrontends(decision),
		Traffic:         c.traffic(decision),
		Cluster:         describeChoice(decision.Selection.Cluster, decision.UsedByKey()),
		Excluded:        describeExclusions(decision.Exclusions()),
		AllowedSources:  allowedSources(decision),
		AffinitySeconds: int(service.AffinityTimeout / time.Second),
		Rejected:        c.Rejected[service.Name.String()],
	}
	if len(service.Topology.NodeKeys()) > 0 {
		port.TopologySource = c.TopologySource
	}
	port.Warnings = warnings(cluster, decision, port.LostFrontends)
	port.Outcome, port.Message = outcomeOfClusterIP(port.Traffic)
	if dialled.addr.IsValid() {
		reached := decision
		reached.Frontends = []model.PortFrontend{decision.Frontends[slices.IndexFunc(decision.Frontends, dialled.reaches)]}
		port.Frontends, port.Traffic = describeFrontends(reached.Frontends), []Traffic{}
		if !dialled.addr.Addr().IsLoopback() {
			port.Traffic = c.traffic(reached)
		}
	}
	if loopback, isShown := c.loopback(decision, dialled.addr); isShown {
		port.Traffic = append(port.Traffic, loopback)
	}
	port.NextTiers = nextTiers(decision.Tiers())
	if decision.Selection.Local != nil {
		local := describeChoice(*decision.Selection.Local, nil)
		port.Local = &local
	}
	return port
}

// nextTiers returns the tiers after the first.
func nextTiers(all []selection.Tier) []Tier {
	var tiers []Tier
	for i := 1; i < len(all); i++ {
		tiers = append(tiers, Tier{endpointNames(all[i].Endpoints)})
	}
	return tiers
}

func endpointNames(endpoints []model.PortEndpoint) []string {
	names := make([]string, 0, len(endpoints))
	for i := range endpoints {
		names = append(names, EndpointName(endpoints[i].Addr))
	}
	return names
}

// describeChoice describes a choice. used is the number of endpoints that each step of its share uses.
func describeChoice(chosen selection.Choice, used []int) Choice {
	return Choice{
		Endpoints: endpointNames(chosen.Endpoints),
		Tier:      chosen.Tier,
		Reason:    string(chosen.Reason.Code),
		Message:   chosen.Reason.Sentence(),
		Shares:    shares(chosen, used),
		Slots:     slots(chosen),
	}
}

// shares returns the shares of the topology keys; a single one if the choice is not split.
func shares(chosen selection.Choice, used []int) []Share {
	switch {
	case chosen.Share == nil && len(chosen.Endpoints) == 0:
		return []Share{}
	case chosen.Share == nil:
		return []Share{{Key: chosen.Tier, Value: chosen.Reason.Value, Share: 1, Endpoints: len(chosen.Endpoints), Used: len(chosen.Endpoints)}}
	}
	list := []Share{}
	for k, step := range chosen.Share.KeyResults {
		if step.Fraction > 0 {
			list = append(list, Share{
				Key: string(step.Key), Value: step.Value, Share: selection.Fraction(step.Fraction).Ratio(), Endpoints: int(step.Endpoints),
				Used: used[k],
			})
		}
	}
	parts := make([]*float64, len(list))
	for i := range list {
		parts[i] = &list[i].Share
	}
	RoundParts(parts...)
	return list
}

func slots(chosen selection.Choice) map[string]int {
	byEndpoint := make(map[string]int, len(chosen.Endpoints))
	for i, endpoint := range chosen.Endpoints {
		name := EndpointName(endpoint.Addr)
		byEndpoint[name] = 1
		if chosen.Slots != nil {
			byEndpoint[name] = chosen.Slots[i]
		}
	}
	return byEndpoint
}

func describeExclusions(exclusions []selection.Exclusion) []Excluded {
	list, sentences := make([]Excluded, 0, len(exclusions)), map[selection.Reason]string{}
	for _, exclusion := range exclusions {
		sentence, isKnown := sentences[exclusion.Reason]
		if !isKnown {
			sentence = exclusion.Reason.Sentence()
			sentences[exclusion.Reason] = sentence
		}
		list = append(list, Excluded{
			Endpoint: EndpointName(exclusion.Endpoint), Reason: string(exclusion.Reason.Code), Message: sentence,
		})
	}
	return list
}

// allowedSources returns the prefixes that may dial the port's LoadBalancerIPs. A prefix of all addresses excludes no
// client.
func allowedSources(decision selection.Decision) []string {
	if !hasFrontendKind(decision, model.LoadBalancerIP) {
		return nil
	}
	allowed := decision.Sources
	if slices.ContainsFunc(allowed, func(prefix netip.Prefix) bool { return prefix.Bits() == 0 }) {
		return nil
	}
	var list []string
	for _, prefix := range allowed {
		list = append(list, prefix.String())
	}
	return list
}

// hasFrontendKind reports whether a frontend of a kind leads to the port.
func hasFrontendKind(decision selection.Decision, kind model.FrontendKind) bool {
	return slices.ContainsFunc(decision.Frontends, func(frontend model.PortFrontend) bool { return frontend.Kind == kind })
}

// healthCheck returns the response to load balancers, in one family, about the Service of some decisions.
func healthCheck(decisions []selection.Decision, family model.Family) *HealthCheck {
	check, hasPort := selection.HealthCheckOf(decisions)
	if !hasPort {
		return nil
	}
	return &HealthCheck{NodePort: int(check.Port), LocalEndpoints: check.Endpoints[family]}
}
