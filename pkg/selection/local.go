package selection

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The policies that keep traffic on this node, as in the Key of a Reason.
const (
	internalTrafficPolicy = "internalTrafficPolicy"
	externalTrafficPolicy = "externalTrafficPolicy"
)

// selectLocal chooses among the endpoints on this node. Topology keys and hints do not apply, because the policy is
// stricter than both. Only endpoints on this node decide whether terminating ones are needed.
func selectLocal(policyField string, endpoints []model.PortEndpoint, viewpoint NodeView) *Choice {
	for _, pass := range [...]struct {
		phase model.Phase
		code  Code
	}{{model.PhaseReady, OnThisNode}, {model.PhaseTerminating, OnThisNodeTerminating}} {
		chosen := filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool {
			return endpoint.Phase() == pass.phase && viewpoint.isLocal(endpoint)
		})
		if len(chosen) > 0 {
			choice := &Choice{Endpoints: chosen, Tier: TierNode, Reason: Reason{Code: pass.code, Key: policyField}}
			choice.markDemotedOnly()
			return choice
		}
	}
	if !anyUsable(endpoints) {
		none := noneUsable(endpoints)
		return &none
	}
	return &Choice{Reason: Reason{Code: NoneOnThisNode, Key: policyField}}
}

// isLocal reports whether an endpoint runs on this node. It returns false if the endpoint's node is unknown.
func (v NodeView) isLocal(endpoint *model.PortEndpoint) bool {
	return endpoint.Node != "" && endpoint.Node == v.Node.Name
}
