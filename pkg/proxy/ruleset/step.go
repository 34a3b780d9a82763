package ruleset

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Weight returns the approximate number of elements of a Service in the tables.
func (s Service) Weight() int {
	weight := 0
	for i := range s.Ports {
		weight += s.Ports[i].weight()
	}
	return weight
}

func (p *Port) weight() int {
	return elementsPerFrontend*len(p.Frontends) + p.elementsPerSlot()*(len(p.Cluster)+len(p.Local))
}

// elementsPerSlot returns the number of elements of a slot, including one that its endpoint may have in addition.
func (p *Port) elementsPerSlot() int {
	if p.needsDedicatedMap() {
		return 2
	}
	return 1 + len(p.Frontends)
}

// elementsPerFrontend is the number of elements of a frontend apart from slots: its class, its traffic policy, its
// source ranges.
const elementsPerFrontend = 3

// NextStep returns a version of a Service between have and want that changes about limit elements, and whether want is
// reached. Removals are all in the first step, so that other Services can have the frontends; additions, and endpoints
// that replace others, follow step by step.
func NextStep(have, want Service, limit int) (next Service, last bool) {
	before := have.byID()
	next, last = Service{Name: want.Name}, true
	for _, port := range want.withStableSlots(have).Ports {
		old := before[port.ID]
		if old == nil {
			old = &Port{}
		}
		if limit <= 0 && !old.contains(port) {
			last = false
			if kept := old.withOnlyFrontends(port.Frontends); len(kept.Frontends) > 0 {
				next.Ports = append(next.Ports, kept)
			}
			continue
		}
		step, weight := old.step(port, limit)
		limit -= weight
		last = last && step.contains(port)
		next.Ports = append(next.Ports, step)
	}
	return next, last
}

// contains reports whether a port already has the slots and the frontends of another one, in the same sets.
func (p *Port) contains(other Port) bool {
	return p.usesSameSets(&other) && slices.Equal(p.Cluster, other.Cluster) && slices.Equal(p.Local, other.Local) &&
		slices.Equal(p.StickyOnly, other.StickyOnly) &&
		len(p.existingFrontends(other.Frontends)) == len(other.Frontends)
}

// step is NextStep for a port. It also returns the approximate number of elements that it changes.
func (p *Port) step(want Port, limit int) (step Port, weight int) {
	step = want
	existing, perNewFrontend := p.existingFrontends(want.Frontends), elementsPerFrontend
	if !want.needsDedicatedMap() {
		perNewFrontend += len(p.Cluster) + len(p.Local)
	}
	room := max(1, limit/perNewFrontend)
	step.Frontends = slices.DeleteFunc(slices.Clone(want.Frontends), func(frontend Frontend) bool {
		if existing[frontend.Frontend] {
			return false
		}
		room--
		return room < 0
	})
	weight = perNewFrontend * max(0, len(step.Frontends)-len(existing))
	room = max(1, (limit-weight)/step.elementsPerSlot()) // otherwise a step might change nothing
	step.Cluster = changeSlots(p.Cluster, want.Cluster, &room)
	step.Local = changeSlots(p.Local, want.Local, &room)
	step.updateClasses()
	if !p.usesSameSets(&step) {
		return step, step.weight()
	}
	return step, weight + step.elementsPerSlot()*(countChanges(p.Cluster, step.Cluster)+countChanges(p.Local, step.Local))
}

// usesSameSets reports whether the elements of a port are in the same sets as those of another one.
func (p *Port) usesSameSets(other *Port) bool {
	return (p.Affinity > 0) == (other.Affinity > 0) && p.needsDedicatedMap() == other.needsDedicatedMap()
}

// changeSlots returns the slots of have with at most limit of them changed to those of want. It returns at least one
// slot if want has any.
func changeSlots(have, want []netip.AddrPort, limit *int) []netip.AddrPort {
	slots := make([]netip.AddrPort, 0, len(want))
	for i, endpoint := range want {
		switch {
		case i < len(have) && have[i] == endpoint:
			slots = append(slots, endpoint)
		case *limit > 0 || len(slots) == 0 && i >= len(have):
			*limit--
			slots = append(slots, endpoint)
		case i < len(have):
			slots = append(slots, have[i])
		default:
			return slots
		}
	}
	return slots
}

// countChanges returns how many slots differ.
func countChanges(have, want []netip.AddrPort) int {
	changes := max(0, len(want)-len(have))
	for i := range min(len(have), len(want)) {
		if have[i] != want[i] {
			changes++
		}
	}
	return changes
}

// updateClasses makes the classes and the endpoints on this node match the slots.
func (p *Port) updateClasses() {
	p.Frontends = slices.Clone(p.Frontends)
	for i := range p.Frontends {
		frontend := &p.Frontends[i]
		switch {
		case frontend.Class.isSplit():
			frontend.Class = SplitClass(len(p.Local), len(p.Cluster))
		case frontend.Class.isBalanced():
			frontend.Class = BalanceClass(len(p.insideEndpoints(frontend)))
		}
	}
	used := make(map[netip.AddrPort]bool, len(p.Cluster)+len(p.Local))
	for _, slots := range [][]netip.AddrPort{p.Cluster, p.Local, p.StickyOnly} {
		for _, endpoint := range slots {
			used[endpoint] = true
		}
	}
	p.OnNode = slices.DeleteFunc(slices.Clone(p.OnNode), func(endpoint netip.AddrPort) bool { return !used[endpoint] })
}

// withOnlyFrontends returns the port with only those of its frontends that are among the given ones.
func (p *Port) withOnlyFrontends(frontends []Frontend) Port {
	wanted, kept := p.existingFrontends(frontends), *p
	kept.Frontends = slices.DeleteFunc(slices.Clone(p.Frontends), func(frontend Frontend) bool { return !wanted[frontend.Frontend] })
	return kept
}

// existingFrontends returns those of some frontends that the port has.
func (p *Port) existingFrontends(frontends []Frontend) map[model.Frontend]bool {
	have := make(map[model.Frontend]bool, len(p.Frontends))
	for i := range p.Frontends {
		have[p.Frontends[i].Frontend] = true
	}
	common := map[model.Frontend]bool{}
	for i := range frontends {
		if have[frontends[i].Frontend] {
			common[frontends[i].Frontend] = true
		}
	}
	return common
}
