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
func (m *Mirror) Plan(wanted []Service, nodeState NodeState) *Plan {
	builder := m.newPlanBuilder()
	for _, want := range wanted {
		builder.replace(m.services[want.Name], want)
	}
	builder.resolveLists()
	builder.resolveShared()
	builder.setNodeState(nodeState)
	return builder.finish()
}

func (m *Mirror) newPlanBuilder() *planBuilder {
	b := &planBuilder{
		mirror:  m,
		plan:    &Plan{config: m.config, tableState: newTableState()},
		deletes: map[elementsKey][]Element{},
		adds:    map[elementsKey][]Element{},
	}
	b.counting.addOne = b.countOne
	return b
}

// planBuilder builds a plan.
type planBuilder struct {
	mirror        *Mirror
	plan          *Plan
	deletes, adds map[elementsKey][]Element
	fills         []dedicatedMapFill
	// ids are those of the lists of source ranges that are in use, by their address in memory.
	ids map[*netip.Prefix]string
	// restored are the numbers that an earlier proxy process left, for a full sync.
	restored map[model.Family]*restoredNumbers
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
func (b *planBuilder) replace(have, want Service) {
	want = b.withTableState(want.withStableSlots(have), have)
	b.replaceOwner(have, want)
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
				b.deletes[key] = append(b.deletes[key], deleted...)
			}
			if len(added) > 0 {
				b.adds[key] = append(b.adds[key], added...)
			}
		}
	}
	b.replaceDedicatedMaps(have, want)
}

// withTableState returns a Service with what the tables assign to it: lists of source ranges, numbers, classes. What
// another plan assigned is ignored.
func (b *planBuilder) withTableState(want, have Service) Service {
	if slices.ContainsFunc(want.Ports, func(port Port) bool { return port.Affinity > 0 || port.isRestricted() || port.needsDedicatedMap() }) {
		want.Ports = slices.Clone(want.Ports)
		before := have.byID()
		for i := range want.Ports {
			port := &want.Ports[i]
			b.assignList(port)
			b.assignNumbers(port, before[port.ID])
			b.assignDedicatedMap(port) // last: its chains have another name with affinity
		}
	}
	for i := range have.Ports {
		b.addAffinityOwner(&have.Ports[i], -1)
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
func (b *planBuilder) replaceOwner(have, want Service) {
	for _, family := range model.Families {
		for _, set := range StaticSets {
			if isShared(set) && !set.static.lists {
				b.count(family, set, have, -1)
				b.count(family, set, want, +1)
			}
		}
	}
	b.addObjectOwners(have, -1)
	b.addObjectOwners(want, +1)
	b.plan.services = append(b.plan.services, want)
}

// count adds to the number of owners of each shared element.
func (b *planBuilder) count(family model.Family, set Set, service Service, delta int) {
	b.counting.family, b.counting.set, b.counting.delta = family, set.Name, delta
	service.each(family, set, b.counting.addOne)
}

func (b *planBuilder) countOne(element Element) bool {
	key := elementKey{family: b.counting.family, set: b.counting.set, key: element.Key}
	addOwner(b.plan.elements, b.mirror.elements, key, element.Verdict, b.counting.delta)
	return true
}

// addObjectOwners records that chains, sets and lists gain or lose a Service as an owner.
func (b *planBuilder) addObjectOwners(service Service, delta int) {
	for i := range service.Ports {
		port := &service.Ports[i]
		for _, chain := range port.Chains(b.mirror.config) {
			b.ownChain(port.ID.Family, chain, delta)
		}
		for _, set := range port.sets() {
			addOwner(b.plan.sets, b.mirror.sets, objectKey{port.ID.Family, set.Name}, set, delta)
		}
		b.addListOwner(port, delta)
	}
}

func (b *planBuilder) ownChain(family model.Family, chain Chain, delta int) {
	addOwner(b.plan.chains, b.mirror.chains, objectKey{family, chain.Name}, chain, delta)
}

// resolveShared turns the counts of owners into elements to add and to delete.
func (b *planBuilder) resolveShared() {
	for key, shared := range b.plan.elements {
		setKey, element := elementsKey{key.family, staticRank(key.set)}, Element{Key: key.key, Verdict: shared.value}
		switch existed := b.mirror.elements[key].owners > 0; {
		case existed && shared.owners == 0:
			b.deletes[setKey] = append(b.deletes[setKey], element)
		case !existed && shared.owners > 0:
			b.adds[setKey] = append(b.adds[setKey], element)
		}
	}
	for _, elements := range []map[elementsKey][]Element{b.deletes, b.adds} {
		for setKey, list := range elements {
			if static := StaticSets[setKey.set].static; static.shared && !static.lists {
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
		if _, isDeleted := before[element.Key]; isDeleted {
			deleted = append(deleted, element)
		}
	}
	return deleted, added
}
