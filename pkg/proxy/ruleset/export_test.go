package ruleset

import (
	"bufio"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// What only tests look at.

// FirstClass, LastClass and LastSlot bound the two ranges of numbers that a packet's priority carries.
const (
	FirstClass = uint32(splitClass)
	LastClass  = uint32(lastClass)
	LastSlot   = lastSlot
)

// IsSplit reports whether the class treats clients from outside in another way than others.
func (c Class) IsSplit() bool { return c.isSplit() }

// IsBalanced reports whether the class leads to a lb chain.
func (c Class) IsBalanced() bool { return c.isBalanced() }

// Slots returns the number of slots of a class that is balanced.
func (c Class) Slots() int { return c.slots() }

// LocalSlots returns the number of local slots of a class that is split.
func (c Class) LocalSlots() int { return c.localSlots() }

// DrawChain returns the chain that the dispatch map leads a class to.
func DrawChain(family model.Family, config Config, class Class) Chain {
	return drawChain(family, config, class)
}

// DispatchOf returns what the dispatch map says of a class.
func DispatchOf(class Class) Verdict { return dispatchOf(class) }

// NumberedClass returns the class that leads to a chain.
func NumberedClass(first Class, chain string, dispatched func(Class) string) Class {
	return numberedClass(first, chain, dispatched)
}

// Text returns the chain as nft writes it.
func (c *Chain) Text(family model.Family) string {
	var text strings.Builder
	buffered := bufio.NewWriter(&text)
	c.print(buffered, family)
	_ = buffered.Flush() // a Builder takes everything
	return text.String()
}

// Elements returns the elements that the port owns in one of the static sets.
func (p *Port) Elements(set Set) iter.Seq[Element] {
	return func(yield func(Element) bool) { p.each(set, yield) }
}

// Equal reports whether two mirrors hold the same, but for the order of slots, which depends on what came before.
func (m *Mirror) Equal(other *Mirror) bool {
	sameService := func(a, b Service) bool { return reflect.DeepEqual(a.withSortedSlots(), b.withSortedSlots()) }
	return maps.EqualFunc(m.services, other.services, sameService) &&
		slices.Equal(m.surroundings.NodePortAddrs, other.surroundings.NodePortAddrs) &&
		slices.Equal(m.surroundings.ServiceCIDRs, other.surroundings.ServiceCIDRs) &&
		maps.Equal(m.elements, other.elements) &&
		maps.EqualFunc(m.chains, other.chains, func(a, b ownedChain) bool { return reflect.DeepEqual(a, b) }) &&
		maps.EqualFunc(m.sets, other.sets, func(a, b ownedSet) bool { return reflect.DeepEqual(a, b) }) &&
		reflect.DeepEqual(m.late, other.late) &&
		maps.Equal(m.leftoverChains, other.leftoverChains) &&
		maps.Equal(m.leftoverSets, other.leftoverSets)
}

func (s Service) withSortedSlots() Service {
	sorted := func(slots []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(slots), netip.AddrPort.Compare)
	}
	ports := slices.Clone(s.Ports)
	for i := range ports {
		ports[i].Cluster, ports[i].Local, ports[i].OnNode = sorted(ports[i].Cluster), sorted(ports[i].Local), sorted(ports[i].OnNode)
	}
	return Service{Name: s.Name, Ports: ports}
}
