package selection

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// selectByKeys tries the topology keys in their order among the ready endpoints, then in the same order among those
// that serve while terminating. So kubernetes.io/hostname alone behaves like a Local policy.
//
// Unusable endpoints are filtered out before a key is chosen: a zone whose endpoints are all unready must not win.
func selectByKeys(keys []policy.Key, endpoints []model.PortEndpoint, viewpoint NodeView) Choice {
	for _, phase := range [...]model.Phase{model.PhaseReady, model.PhaseTerminating} {
		for _, key := range keys {
			value, hasValue := viewpoint.nodeValue(key)
			if !hasValue {
				continue
			}
			chosen := filterEndpoints(endpoints, func(endpoint *model.PortEndpoint) bool {
				return endpoint.Phase() == phase && viewpoint.matches(endpoint, key, value)
			})
			if len(chosen) > 0 {
				return Choice{
					Endpoints: chosen,
					Tier:      string(key),
					Reason:    Reason{Code: matchCode(key, phase), Key: string(key), Value: value},
				}
			}
		}
	}
	if !anyUsable(endpoints) {
		return noneUsable(endpoints)
	}
	// The last key is usually the widest one, so it is the most useful reason.
	return Choice{Reason: viewpoint.noMatchReason(keys[len(keys)-1])}
}

func matchCode(key policy.Key, chosen model.Phase) Code {
	switch {
	case key == policy.AnyNode && chosen == model.PhaseReady:
		return MatchedAnyNode
	case key == policy.AnyNode:
		return MatchedAnyNodeTerminating
	case chosen == model.PhaseReady:
		return MatchedTopologyKey
	}
	return MatchedTopologyKeyTerminating
}

// noMatchReason returns the reason why no endpoint matches, given the last key.
func (v NodeView) noMatchReason(last policy.Key) Reason {
	value, hasValue := v.nodeValue(last)
	if !hasValue {
		return Reason{Code: NodeHasNoTopologyLabel, Key: string(last)}
	}
	return Reason{Code: NoTopologyMatch, Key: string(last), Value: value}
}

// nodeValue returns this node's value of a key, and whether it has one.
func (v NodeView) nodeValue(key policy.Key) (value string, hasValue bool) {
	return balance.NodeValue(key, v.Node.Name, v.Node.Labels)
}

// matches reports whether an endpoint has this node's value of a key.
func (v NodeView) matches(endpoint *model.PortEndpoint, key policy.Key, nodeValue string) bool {
	if key == policy.AnyNode {
		return true
	}
	value, known := v.ValueOf(endpoint, key)
	return known && value == nodeValue
}

// firstMatch returns the index of the first key that matches an endpoint, or the number of keys if none does.
func (v NodeView) firstMatch(keys []policy.Key, endpoint *model.PortEndpoint) int {
	for k, key := range keys {
		if nodeValue, hasValue := v.nodeValue(key); hasValue && v.matches(endpoint, key, nodeValue) {
			return k
		}
	}
	return len(keys)
}

// ValueOf returns an endpoint's value of a key, and whether it is known. The EndpointSlice has the values of keys that
// need no Node (policy.Key.NeedsNode). If it does not name the zone, the Node's label is used if the Node is known.
func (v NodeView) ValueOf(endpoint *model.PortEndpoint, key policy.Key) (value string, known bool) {
	switch {
	case key == policy.Hostname:
		return endpoint.Node, endpoint.Node != ""
	case key == policy.Zone && endpoint.Zone != "":
		return endpoint.Zone, true
	}
	labels, _ := v.labelsOf(endpoint.Node)
	value, known = labels[string(key)]
	return value, known
}

// labelsOf returns the labels of a node, and whether it is known. This node is always watched, other nodes only if
// needed.
func (v NodeView) labelsOf(node string) (labels map[string]string, known bool) {
	switch {
	case node == "":
		return nil, false
	case node == v.Node.Name && v.Node.Labels != nil:
		return v.Node.Labels, true
	case v.Labels == nil:
		return nil, false
	}
	return v.Labels(node)
}
