package ruleset

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Plan leads from what a Mirror holds to what some Services should own.
type Plan struct {
	// Prerequisites is what the kernel has to accept first: what the elements of Batch may lead a packet to. It is often empty.
	// It is a separate batch because a packet on its way sees the rules of the moment when it arrived, but the elements of
	// the moment when it looks.
	Prerequisites Batch
	// Batch is what the kernel has to accept then.
	Batch Batch
	// WithoutAffinity are the ports whose clients are not remembered, though they should be: no numbers are left for them.
	WithoutAffinity []model.PortID

	config Config
	// What the mirror will hold once the batch is accepted: absolute values for all keys the plan touches.
	tableState

	services []Service
	// resurrected are the late elements of an earlier plan that come back before they are swept.
	resurrected []elementKey
	// recreated are the sets that leave nothing to the sweep, because they are made anew.
	recreated []objectKey
}

// Services returns the number of Services that the plan is about.
func (p *Plan) Services() int { return len(p.services) }

// Plan returns how to make the given Services own what they should, and the tables agree with their surroundings. A
// Service without ports owns nothing. Each may be given once. The work is proportional to what these Services own,
// never to what exists.
func (m *Mirror) Plan(wanted []Service, surroundings NodeState) *Plan {
	draft := m.draft()
	for _, want := range wanted {
		draft.replace(m.services[want.Name], want)
	}
	draft.resolveLists()
	draft.resolveShared()
	draft.surround(surroundings)
	return draft.finish()
}

func (m *Mirror) draft() *planBuilder {
	d := &planBuilder{
		mirror:  m,
		plan:    &Plan{config: m.config, tableState: newHoldings()},
		deletes: map[elementsKey][]Element{},
		adds:    map[elementsKey][]Element{},
	}
	d.counting.addOne = d.countOne
	return d
}

// planBuilder is a plan in the making.
type planBuilder struct {
	mirror        *Mirror
	plan          *Plan
	deletes, adds map[elementsKey][]Element
	fill          []dedicatedMap
	// ids are those of the lists of source ranges that were asked for, by where they are in memory.
	ids map[*netip.Prefix]string
	// restored are the numbers that an earlier proxy left, for a resync.
	restored map[model.Family]*restored
	// counting is what count is at. It is made once, for a first sync counts through six sets of each of many Services.
	counting struct {
		family model.Family
		set    string
		delta  int
		addOne func(Element) bool
	}
}

type elementsKey struct {
	family model.Family
	set    int // index in StaticSets
}

// replace notes what changes when a Service owns want instead of have.
func (d *planBuilder) replace(have, want Service) {
	want = d.withTableState(want.withStableSlots(have), have)
	d.replaceOwner(have, want)
	for _, family := range model.Families {
		if !have.isIn(family) && !want.isIn(family) {
			continue
		}
		for index, set := range StaticSets {
			if isShared(set) {
				continue
			}
			key := elementsKey{family, index}
			deleted, added := difference(have.elements(family, set), want.elements(family, set))
			if len(deleted) > 0 {
				d.deletes[key] = append(d.deletes[key], deleted...)
			}
			if len(added) > 0 {
				d.adds[key] = append(d.adds[key], added...)
			}
		}
	}
	d.replaceWide(have, want)
}

// withTableState returns a Service with what the tables decide about it: lists of source ranges, numbers, classes. What
// another plan decided about that no longer counts.
func (d *planBuilder) withTableState(want, have Service) Service {
	if slices.ContainsFunc(want.Ports, func(port Port) bool { return port.Affinity > 0 || port.isRestricted() || port.needsDedicatedMap() }) {
		want.Ports = slices.Clone(want.Ports)
		before := have.byID()
		for i := range want.Ports {
			port := &want.Ports[i]
			d.restrict(port)
			d.number(port, before[port.ID])
			d.assignDedicatedMap(port) // whose chains have another name if clients are remembered
		}
	}
	for i := range have.Ports {
		d.claim(&have.Ports[i], -1)
	}
	return want
}

// planned returns what a plan says of a key, or what the mirror said before.
func planned[K comparable, V any](plan, mirror map[K]V, key K) V {
	if value, seen := plan[key]; seen {
		return value
	}
	return mirror[key]
}

// replaceOwner notes what the mirror will hold when a Service owns want instead of have, and who owns what is shared.
func (d *planBuilder) replaceOwner(have, want Service) {
	for _, family := range model.Families {
		for _, set := range StaticSets {
			if isShared(set) && !set.static.lists {
				d.count(family, set, have, -1)
				d.count(family, set, want, +1)
			}
		}
	}
	d.addObjectOwners(have, -1)
	d.addObjectOwners(want, +1)
	d.plan.services = append(d.plan.services, want)
}

// count adds to the number of owners of each shared element.
func (d *planBuilder) count(family model.Family, set Set, service Service, delta int) {
	d.counting.family, d.counting.set, d.counting.delta = family, set.Name, delta
	service.each(family, set, d.counting.addOne)
}

func (d *planBuilder) countOne(element Element) bool {
	key := elementKey{family: d.counting.family, set: d.counting.set, key: element.Key}
	addOwner(d.plan.elements, d.mirror.elements, key, element.Verdict, d.counting.delta)
	return true
}

// addObjectOwners notes that chains, sets and lists get or lose a Service as an owner.
func (d *planBuilder) addObjectOwners(service Service, delta int) {
	for i := range service.Ports {
		port := &service.Ports[i]
		for _, chain := range port.Chains(d.mirror.config) {
			d.ownChain(port.ID.Family, chain, delta)
		}
		for _, set := range port.sets() {
			addOwner(d.plan.sets, d.mirror.sets, objectKey{port.ID.Family, set.Name}, set, delta)
		}
		d.addListOwner(port, delta)
	}
}

func (d *planBuilder) ownChain(family model.Family, chain Chain, delta int) {
	addOwner(d.plan.chains, d.mirror.chains, objectKey{family, chain.Name}, chain, delta)
}

// resolveShared turns the counts of owners into elements to add and to delete.
func (d *planBuilder) resolveShared() {
	for key, shared := range d.plan.elements {
		where, element := elementsKey{key.family, staticRank(key.set)}, Element{Key: key.key, Verdict: shared.value}
		switch had := d.mirror.elements[key].owners > 0; {
		case had && shared.owners == 0:
			d.deletes[where] = append(d.deletes[where], element)
		case !had && shared.owners > 0:
			d.adds[where] = append(d.adds[where], element)
		}
	}
	for _, elements := range []map[elementsKey][]Element{d.deletes, d.adds} {
		for where, list := range elements {
			if static := StaticSets[where.set].static; static.shared && !static.lists {
				sortElements(list) // they come from a map, and batches are the same each time
			}
		}
	}
}

// difference returns the elements of have that want lacks or gives another value, and those of want that have lacks or
// gave another value.
func difference(have, want iter.Seq[Element]) (deleted, added []Element) {
	var before map[Tuple]Element // most Services have nothing in most sets
	for element := range have {
		if before == nil {
			before = map[Tuple]Element{}
		}
		before[element.Key] = element
	}
	for element := range want {
		old, ok := before[element.Key]
		if ok && old == element {
			delete(before, element.Key)
			continue
		}
		added = append(added, element)
	}
	if len(before) == 0 {
		return nil, added
	}
	for element := range have {
		if _, gone := before[element.Key]; gone {
			deleted = append(deleted, element)
		}
	}
	return deleted, added
}
