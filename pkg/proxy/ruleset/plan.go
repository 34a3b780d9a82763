package ruleset

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Plan is the change from the content of a Mirror to what some Services should own.
type Plan struct {
	// Prerequisites is the batch that the kernel must accept first: the objects to which elements of Batch may lead a
	// packet. It is often empty. It is a separate batch because a packet in flight sees the rules of the moment when it
	// arrived, but the elements of the moment of the lookup.
	Prerequisites Batch
	// Batch is the batch that the kernel must accept next.
	Batch Batch
	// WithoutAffinity are the ports that should have session affinity, but for which no numbers are left.
	WithoutAffinity []model.PortID

	config Config
	// The mirror's state once the batch is accepted: absolute values for all keys that the plan touches.
	tableState

	services []Service
	// resurrected are elements whose deletion an earlier plan deferred and that are added again before the cleanup.
	resurrected []elementKey
	// recreated are the sets for which no deletion is left to the cleanup, because they are recreated.
	recreated []objectKey
}

// Services returns the number of Services in the plan.
func (p *Plan) Services() int { return len(p.services) }

// Plan returns the change that makes the given Services own what they should, and the tables match the node state. A
// Service without ports owns nothing. Each may be given once. The cost is proportional to what these Services own,
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
		plan:    &Plan{config: m.config, tableState: newTableState()},
		deletes: map[elementsKey][]Element{},
		adds:    map[elementsKey][]Element{},
	}
	d.counting.addOne = d.countOne
	return d
}

// planBuilder builds a plan.
type planBuilder struct {
	mirror        *Mirror
	plan          *Plan
	deletes, adds map[elementsKey][]Element
	fill          []dedicatedMap
	// ids are those of the lists of source ranges that are in use, by their address in memory.
	ids map[*netip.Prefix]string
	// restored are the numbers that an earlier proxy process left, for a full sync.
	restored map[model.Family]*restored
	// counting is the state of count. addOne is created once, because a first sync counts through six sets of each of many
	// Services.
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

// replace plans the change of a Service from have to want.
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

// withTableState returns a Service with what the tables assign to it: lists of source ranges, numbers, classes. What
// another plan assigned is ignored.
func (d *planBuilder) withTableState(want, have Service) Service {
	if slices.ContainsFunc(want.Ports, func(port Port) bool { return port.Affinity > 0 || port.isRestricted() || port.needsDedicatedMap() }) {
		want.Ports = slices.Clone(want.Ports)
		before := have.byID()
		for i := range want.Ports {
			port := &want.Ports[i]
			d.restrict(port)
			d.number(port, before[port.ID])
			d.assignDedicatedMap(port) // last: its chains have another name with affinity
		}
	}
	for i := range have.Ports {
		d.claim(&have.Ports[i], -1)
	}
	return want
}

// planned returns the value of a key in a plan, or in the mirror if the plan has none.
func planned[K comparable, V any](plan, mirror map[K]V, key K) V {
	if value, seen := plan[key]; seen {
		return value
	}
	return mirror[key]
}

// replaceOwner plans the mirror's state for a Service that owns want instead of have, and the owners of shared objects.
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

// addObjectOwners records that chains, sets and lists gain or lose a Service as an owner.
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
				sortElements(list) // they come from a map, but batches are deterministic
			}
		}
	}
}

// difference returns the elements of have that want lacks or has with another value, and those of want that have lacks
// or has with another value.
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
