package ruleset

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// surround plans the change of the node state.
func (d *planBuilder) surround(surroundings NodeState) {
	d.plan.surroundings = surroundings
	if slices.Equal(d.mirror.surroundings.NodePortAddrs, surroundings.NodePortAddrs) {
		return
	}
	for _, family := range d.mirror.config.Families {
		key := elementsKey{family, staticRank(NodePortIPs.Name)}
		d.deletes[key], d.adds[key] = difference(d.mirror.surroundings.elements(family), surroundings.elements(family))
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
func (d *planBuilder) replaceStaticChains(batch *Batch) {
	if slices.Equal(d.mirror.surroundings.ServiceCIDRs, d.plan.surroundings.ServiceCIDRs) {
		return
	}
	config := d.mirror.config
	for _, family := range config.Families {
		have := StaticChains(family, config, d.mirror.surroundings)
		for i, want := range StaticChains(family, config, d.plan.surroundings) {
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

// NewSurroundings returns the state of a node whose interfaces have the addresses present.
func NewSurroundings(config Config, node model.Node, present []netip.Addr, serviceCIDRs []netip.Prefix) NodeState {
	surroundings := NodeState{ServiceCIDRs: serviceCIDRs}
	for _, family := range config.Families {
		if !config.NodePorts.All(family) {
			surroundings.NodePortAddrs = append(surroundings.NodePortAddrs, config.NodePorts.Choose(family, node, present)...)
		}
	}
	return surroundings
}
