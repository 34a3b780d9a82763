package explain

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Build tells the story of a decision that was made on a node, and of the endpoints it left out.
func Build(node string, decision selection.Decision, exclusions []selection.Exclusion) Port {
	service, chosen := decision.Service, decision.Selection
	_, outcome := chosen.ClusterIP()
	port := Port{
		Node:            node,
		Service:         service.Name.String(),
		Port:            decision.Port.Name,
		Number:          int(decision.Port.Port),
		Protocol:        decision.Port.Protocol.String(),
		Family:          decision.Family.String(),
		Frontends:       frontends(decision.Owned),
		Outcome:         outcomeNames[outcome],
		Message:         outcomeMessage(decision),
		Cluster:         choice(chosen.Cluster),
		Excluded:        excluded(exclusions),
		AffinitySeconds: int(service.AffinityTimeout / time.Second),
		Warnings:        warnings(decision),
	}
	if chosen.Local != nil {
		local := choice(*chosen.Local)
		port.Local = &local
	}
	return port
}

func frontends(owned []model.Frontend) []string {
	list := make([]string, 0, len(owned))
	for _, frontend := range owned {
		list = append(list, netip.AddrPortFrom(frontend.Addr, frontend.Port).String())
	}
	return list
}

func choice(chosen selection.Choice) Choice {
	endpoints := make([]string, 0, len(chosen.Endpoints))
	for _, endpoint := range chosen.Endpoints {
		endpoints = append(endpoints, endpoint.Addr.String())
	}
	return Choice{
		Endpoints: endpoints,
		Tier:      chosen.Tier,
		Reason:    string(chosen.Reason.Code),
		Message:   chosen.Reason.Sentence(),
	}
}

func excluded(exclusions []selection.Exclusion) []Excluded {
	list := make([]Excluded, 0, len(exclusions))
	for _, exclusion := range exclusions {
		list = append(list, Excluded{
			Endpoint: exclusion.Endpoint.String(),
			Reason:   string(exclusion.Reason.Code),
			Message:  exclusion.Reason.Sentence(),
		})
	}
	return list
}

func warnings(decision selection.Decision) []string {
	var list []string
	if ignored := decision.Service.Topology.Ignored; ignored != "" {
		list = append(list, "The annotation "+policy.TopologyKeysAnnotation+" is ignored: "+ignored)
	}
	for _, lost := range decision.Lost {
		list = append(list, fmt.Sprintf("%s belongs to the older Service %s, until that one lets go of it.", lost.Frontend, lost.Owner))
	}
	return list
}
