package ruleset

import (
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// What only tests look at.

// Elements returns the elements that the port owns in one of the static sets.
func (p *Port) Elements(set Set) iter.Seq[Element] {
	return func(yield func(Element) bool) { p.each(set, yield) }
}

// Service returns what a Service owns; nothing if it owns nothing.
func (m *Mirror) Service(name model.ObjectName) Service { return m.services[name] }

// Equal reports whether two mirrors hold the same, but for the order of slots, which depends on what came before.
func (m *Mirror) Equal(other *Mirror) bool {
	sameService := func(a, b Service) bool { return reflect.DeepEqual(a.withSortedSlots(), b.withSortedSlots()) }
	return maps.EqualFunc(m.services, other.services, sameService) &&
		maps.Equal(m.elements, other.elements) &&
		maps.EqualFunc(m.chains, other.chains, func(a, b ownedChain) bool { return reflect.DeepEqual(a, b) }) &&
		maps.EqualFunc(m.sets, other.sets, func(a, b Set) bool { return a.Name == b.Name }) &&
		maps.Equal(m.late, other.late) &&
		maps.Equal(m.leftoverChains, other.leftoverChains) &&
		maps.Equal(m.leftoverSets, other.leftoverSets)
}

func (s Service) withSortedSlots() Service {
	ports := slices.Clone(s.Ports)
	for i := range ports {
		ports[i].Slots = slices.SortedFunc(slices.Values(ports[i].Slots), netip.AddrPort.Compare)
	}
	return Service{Name: s.Name, Ports: ports}
}
