package ruleset

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// setNodeState plans the change of the node state.
func (b *planBuilder) setNodeState(nodeState NodeState) {
	b.plan.nodeState = nodeState
	if slices.Equal(b.mirror.nodeState.NodePortAddrs, nodeState.NodePortAddrs) {
		return
	}
	for _, family := range b.mirror.config.Families {
		key := elementsKey{family, staticRank(NodePortIPs.Name)}
		b.deletes[key], b.adds[key] = difference(b.mirror.nodeState.elements(family), nodeState.elements(family))
	}
}

// elements returns the elements of nodeport-ips.
func (s NodeState) elements(family model.Family) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		for _, addr := range s.NodePortAddrs {
			if model.FamilyOf(addr) == family && !yield(Element{Key: Tuple{Addr: addr}}) {
				return
			}
		}
	}
}

// replaceStaticChains rewrites the static chains whose rules change with the node state.
func (b *planBuilder) replaceStaticChains(batch *Batch) {
	if slices.Equal(b.mirror.nodeState.ServiceCIDRs, b.plan.nodeState.ServiceCIDRs) {
		return
	}
	config := b.mirror.config
	for _, family := range config.Families {
		have := StaticChains(family, config, b.mirror.nodeState)
		for i, want := range StaticChains(family, config, b.plan.nodeState) {
			if !reflect.DeepEqual(want, have[i]) {
				batch.rewrite(family, want)
			}
		}
	}
}

// rewrite replaces the rules of an existing chain.
func (b *Batch) rewrite(family model.Family, chain Chain) {
	b.add(Flush, family, ChainObject{chain})
	b.add(Add, family, RulesObject{chain})
}

// NewNodeState returns the state of a node whose interfaces have the addresses in present.
func NewNodeState(config Config, node model.Node, present []netip.Addr, serviceCIDRs []netip.Prefix) NodeState {
	state := NodeState{ServiceCIDRs: serviceCIDRs}
	for _, family := range config.Families {
		if !config.NodePorts.All(family) {
			state.NodePortAddrs = append(state.NodePortAddrs, config.NodePorts.Choose(family, node, present)...)
		}
	}
	return state
}
