package selection

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// selectByHints applies the EndpointSlices' hints exactly as kube-proxy 1.37 does: hints for nodes, then for zones, and
// each kind only if every ready endpoint has one and some of them name this node or its zone. Otherwise a Service could
// have endpoints here and nowhere else, or none here at all.
func selectByHints(endpoints []model.PortEndpoint, viewpoint NodeView) Choice {
	// A node without the label is in the zone "", as in kube-proxy. The API accepts hints for that zone.
	node, zone := viewpoint.Node.Name, viewpoint.Node.Labels[string(policy.Zone)]
	survey := surveyHints(endpoints, node, zone)
	switch {
	case !survey.anyReady:
		return selectTerminating(endpoints)
	case survey.nodes.usable():
		return Choice{
			Endpoints: pickHinted(endpoints, forNodes, node),
			Tier:      TierForNodes,
			Reason:    Reason{Code: HintedForThisNode, Key: TierForNodes, Value: node},
		}
	case survey.zones.usable():
		return Choice{
			Endpoints: pickHinted(endpoints, forZones, zone),
			Tier:      TierForZones,
			Reason:    survey.zonesReason(zone),
		}
	}
	return Choice{Endpoints: pickPhase(endpoints, model.PhaseReady), Tier: TierAll, Reason: survey.allReason(node, zone)}
}

// selectTerminating returns the choice if no endpoint is ready. Hints do not apply to terminating endpoints.
func selectTerminating(endpoints []model.PortEndpoint) Choice {
	chosen := pickPhase(endpoints, model.PhaseTerminating)
	if len(chosen) == 0 {
		return noneUsable(endpoints)
	}
	return Choice{Endpoints: chosen, Tier: TierAll, Reason: Reason{Code: OnlyTerminating}}
}

func forNodes(endpoint *model.PortEndpoint) []string { return endpoint.HintNodes }

func forZones(endpoint *model.PortEndpoint) []string { return endpoint.HintZones }

func pickHinted(endpoints []model.PortEndpoint, hints func(*model.PortEndpoint) []string, name string) []model.PortEndpoint {
	return filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool {
		return endpoint.Phase() == model.PhaseReady && slices.Contains(hints(endpoint), name)
	})
}

// hintSurvey summarizes the hints of the ready endpoints. Hints of other endpoints are irrelevant.
type hintSurvey struct {
	anyReady     bool
	nodes, zones kindSurvey
}

// kindSurvey summarizes the hints of one kind.
type kindSurvey struct {
	present       bool           // some ready endpoint has a hint
	namesThisNode bool           // some ready endpoint has a hint that names this node or its zone
	missing       bool           // some ready endpoint has no hint
	firstMissing  netip.AddrPort // the first such endpoint
}

func surveyHints(endpoints []model.PortEndpoint, node, zone string) hintSurvey {
	var survey hintSurvey
	for i := range endpoints {
		endpoint := &endpoints[i]
		if endpoint.Phase() == model.PhaseReady {
			survey.anyReady = true
			survey.nodes.add(endpoint.Addr, endpoint.HintNodes, node)
			survey.zones.add(endpoint.Addr, endpoint.HintZones, zone)
		}
	}
	return survey
}

func (k *kindSurvey) add(endpoint netip.AddrPort, hints []string, name string) {
	switch {
	case len(hints) > 0:
		k.present = true
		k.namesThisNode = k.namesThisNode || slices.Contains(hints, name)
	case !k.missing:
		k.missing, k.firstMissing = true, endpoint
	}
}

func (k *kindSurvey) usable() bool { return k.namesThisNode && !k.missing }

// MissingHints returns a sentence if a setting that works through hints has no effect because ready endpoints have
// none, and an empty string otherwise.
func MissingHints(service *model.Service, endpoints []model.PortEndpoint) string {
	if service.Topology.HintsSetting == "" || service.IsHeadless {
		return ""
	}
	survey := surveyHints(endpoints, "", "")
	switch nodes, zones := &survey.nodes, &survey.zones; {
	case !survey.anyReady, nodes.present && !nodes.missing, zones.present && !zones.missing:
		return ""
	case zones.present:
		return service.Topology.HintsSetting + " is set, and has no effect, because the ready endpoint " + zones.firstMissing.String() +
			" has no hint."
	case nodes.present:
		return service.Topology.HintsSetting + " is set, and has no effect, because the ready endpoint " + nodes.firstMissing.String() +
			" has no hint."
	}
	return service.Topology.HintsSetting + " is set, and has no effect, because no EndpointSlice of the Service has hints."
}

// MissingZone explains why a ready endpoint has no zone in its EndpointSlice, and when it gets one: without it, the
// controller writes no hint for zones. It returns an empty string if all ready endpoints have a zone, or if the
// Service's hints need none. The viewpoint has the nodes' labels.
func MissingZone(service *model.Service, endpoints []model.PortEndpoint, viewpoint NodeView) string {
	if strings.HasSuffix(service.Topology.HintsSetting, policy.PreferSameNode) {
		return ""
	}
	for i := range endpoints {
		endpoint := &endpoints[i]
		if endpoint.Phase() != model.PhaseReady || endpoint.Zone != "" {
			continue
		}
		if endpoint.Node == "" {
			return "The ready endpoint " + endpoint.Addr.String() + " has no Node, and therefore no zone."
		}
		sentence := fmt.Sprintf("The ready endpoint %s has no zone in its EndpointSlice, because %s had no label %s when that was written",
			endpoint.Addr, endpoint.Node, policy.Zone)
		if labels, known := viewpoint.labelsOf(endpoint.Node); known {
			if labels[string(policy.Zone)] != "" {
				sentence += ". It has the label now"
			} else {
				sentence += ", and has none now"
			}
		}
		return sentence + ". " + policy.ZoneInSlices + "."
	}
	return ""
}

// zonesReason returns the reason why hints for zones are used, and hints for nodes are not.
func (s *hintSurvey) zonesReason(zone string) Reason {
	reason := Reason{Code: HintedForThisZone, Key: TierForZones, Value: zone}
	switch {
	case s.nodes.present && s.nodes.missing:
		reason.Code, reason.Endpoint = HintedForThisZoneNodeHintsIncomplete, s.nodes.firstMissing
	case s.nodes.present:
		reason.Code = HintedForThisZoneNotNode
	}
	return reason
}

// allReason returns the reason why no hints are used. Hints for zones were tried last, so their reasons take
// precedence.
func (s *hintSurvey) allReason(node, zone string) Reason {
	switch {
	case s.zones.present && s.zones.missing:
		return Reason{Code: HintsIncomplete, Key: TierForZones, Endpoint: s.zones.firstMissing}
	case s.zones.present && zone == "":
		return Reason{Code: NodeHasNoZone, Key: string(policy.Zone)}
	case s.zones.present:
		return Reason{Code: NoHintForThisZone, Key: TierForZones, Value: zone}
	case s.nodes.present && s.nodes.missing:
		return Reason{Code: HintsIncomplete, Key: TierForNodes, Endpoint: s.nodes.firstMissing}
	case s.nodes.present:
		return Reason{Code: NoHintForThisNode, Key: TierForNodes, Value: node}
	}
	return Reason{Code: AllEndpoints}
}
