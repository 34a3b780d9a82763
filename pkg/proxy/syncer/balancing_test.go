package syncer_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// balancing is the content of a family's maps about frontends, or about node ports, in one form with and without
// session affinity.
type balancing struct {
	family    model.Family
	set       string // the set of the frontends
	frontends []dispatchedFrontend
	// slots lead to endpoints. A slot with a number that has no endpoint leads to none. unusedSlots are slots in a map
	// that their frontend no longer uses.
	slots, unusedSlots []ruleset.Element
}

// dispatchedFrontend is a frontend, and how its endpoint is selected.
type dispatchedFrontend struct {
	key   ruleset.Tuple
	class ruleset.Class
	// dispatched is set if a chain handles its class.
	dispatched bool
	// affinityEndpoints are the endpoints that may be in affinity entries of clients, inside or outside: those that some
	// slot leads to. It is nil without session affinity.
	affinityEndpoints map[netip.AddrPort]bool
	// clients identifies the affinity map of these clients, and numbers are the endpoint numbers in it.
	clients affinityClients
	numbers map[netip.AddrPort][]uint32
}

// affinityClients are the clients of a frontend whose affinity entries are in one map of its owner.
type affinityClients struct {
	family     model.Family
	set, owner string
	frontend   ruleset.Tuple
	shard      uint32
}

// frontendMaps are the maps with the same content about frontends and about node ports.
var frontendMaps = []struct{ classes, endpoints, sticky, ports, outside, stickyEndpoints ruleset.Set }{
	{ruleset.Services, ruleset.Endpoints, ruleset.Sticky, ruleset.StickyPorts, ruleset.StickyOutside, ruleset.StickyEndpoints},
	{
		ruleset.NodePorts, ruleset.NodePortEndpoints, ruleset.NodePortSticky, ruleset.NodePortStickyPorts,
		ruleset.NodePortStickyOutside, ruleset.NodePortStickyEndpoints,
	},
}

// isSticky reports whether a class looks up the client's affinity first.
func isSticky(class ruleset.Class) bool { return class>>24 == 0xf7 }

// portOf returns the number of the port to which an endpoint's number belongs, among those of ports with few endpoints.
func portOf(endpoint uint32) uint32 { return endpoint &^ 0x020000ff }

// balancingIn reads a family's table; the result is empty if the table does not exist.
func balancingIn(t testing.TB, kernel *memoryKernel, family model.Family) []balancing {
	t.Helper()
	if !kernel.Tables.Objects(family).Table {
		return nil
	}
	numbered := map[ruleset.Tuple]netip.AddrPort{}
	for _, set := range []ruleset.Set{ruleset.Numbered, ruleset.NumberedCollided} {
		for _, element := range elementsIfExists(kernel, family, set) {
			numbered[element.Key] = netip.AddrPortFrom(element.Value.Addr, element.Value.Port)
		}
	}
	classesIn := func(set ruleset.Set) map[ruleset.Class]bool {
		classes := map[ruleset.Class]bool{}
		for _, element := range elementsIfExists(kernel, family, set) {
			classes[ruleset.Class(element.Key.Number)] = true
		}
		return classes
	}
	selectable := map[uint32]bool{}
	static := []ruleset.Set{ruleset.StickyEndpoints, ruleset.NodePortStickyEndpoints}
	for _, set := range append(dedicatedMaps(kernel.Tables.Objects(family)), static...) {
		for _, slot := range elementsIfExists(kernel, family, set) {
			selectable[slot.Value.Number] = true
		}
	}
	dispatched, stickyDispatched := classesIn(ruleset.Dispatch), classesIn(ruleset.StickyDispatch)
	var all []balancing
	for _, sets := range frontendMaps {
		stickyClasses := map[ruleset.Tuple]ruleset.Class{}
		for _, element := range elementsIfExists(kernel, family, sets.sticky) {
			stickyClasses[element.Key] = ruleset.Class(element.Value.Number)
		}
		ports := map[ruleset.Tuple][]uint32{}
		for _, set := range []ruleset.Set{sets.ports, sets.outside} {
			for _, element := range elementsIfExists(kernel, family, set) {
				ports[element.Key] = append(ports[element.Key], element.Value.Number)
			}
		}
		found, hasAffinity := balancing{family: family, set: sets.classes.Name}, map[ruleset.Tuple]bool{}
		for _, element := range elementsIfExists(kernel, family, sets.classes) {
			frontend := dispatchedFrontend{key: element.Key, class: ruleset.Class(element.Value.Number)}
			frontend.dispatched, hasAffinity[element.Key] = dispatched[frontend.class], isSticky(frontend.class)
			if isSticky(frontend.class) {
				frontend.class = stickyClasses[element.Key]
				frontend.dispatched = frontend.dispatched && stickyDispatched[frontend.class] && len(ports[element.Key]) > 0
				frontend.affinityEndpoints, frontend.numbers = map[netip.AddrPort]bool{}, map[netip.AddrPort][]uint32{}
				frontend.clients = affinityClients{family, sets.classes.Name, element.Comment, element.Key, element.Value.Number >> 1 & 0x1f}
				for key, endpoint := range numbered {
					for _, port := range ports[element.Key] {
						if key.Proto == element.Key.Proto && portOf(key.Number) == port && selectable[key.Number] {
							frontend.affinityEndpoints[endpoint] = true
							frontend.numbers[endpoint] = append(frontend.numbers[endpoint], key.Number)
						}
					}
				}
			}
			found.frontends = append(found.frontends, frontend)
		}
		add := func(slot ruleset.Element, sticky bool) {
			frontend := slot.Key
			frontend.Number = 0
			if isStickyFrontend, isKnown := hasAffinity[frontend]; isKnown && isStickyFrontend != sticky {
				found.unusedSlots = append(found.unusedSlots, slot)
				return
			}
			found.slots = append(found.slots, slot)
		}
		for _, slot := range elementsIfExists(kernel, family, sets.endpoints) {
			add(slot, false)
		}
		for _, slot := range elementsIfExists(kernel, family, sets.stickyEndpoints) {
			endpoint := numbered[ruleset.Tuple{Proto: slot.Key.Proto, Number: slot.Value.Number}]
			slot.Value = ruleset.Tuple{Addr: endpoint.Addr(), Port: endpoint.Port()}
			add(slot, true)
		}
		all = append(all, found)
	}
	return all
}

// elementsIfExists returns the elements of a set; none if the set does not exist.
func elementsIfExists(kernel *memoryKernel, family model.Family, set ruleset.Set) []ruleset.Element {
	elements, err := kernel.Elements(family, set)
	if err != nil {
		return nil
	}
	return elements
}
