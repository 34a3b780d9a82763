package ruleset

import (
	"iter"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Dedicated maps. The map of all endpoints has an element for each slot of each frontend: a packet finds it with one
// lookup, and most ports have few of either. A port with many of both has a map of its own instead, keyed by slot
// alone, and chains of its own that pick a slot and use that map. That costs frontends plus slots instead of frontends
// times slots.
const (
	endpointsPrefix    = "endpoints-"
	balanceChainPrefix = "lb-"
	// Suffixes after the port's name: for a chain of the local view, and for a chain that chooses the view.
	localSuffix  = "/local"
	choiceSuffix = "/external"
	// A port has a dedicated map if its product of frontends and slots is larger than minDedicatedElements and more
	// than minDedicatedRatio times their sum, or larger than maxSharedElements; or if it has more than
	// minDedicatedFrontends, because the class of such a port stays the same when its endpoints change. Its chains are
	// verdicts of the dispatch map, so only few ports should have them.
	minDedicatedElements  = 1024
	minDedicatedRatio     = 8
	maxSharedElements     = 8192
	minDedicatedFrontends = 256
)

// dedicatedKind selects which endpoints a frontend of a port with a dedicated map may use: those of all nodes, those
// that an internal Local policy allows, or one or the other, depending on the client.
type dedicatedKind int

const (
	dedicatedCluster dedicatedKind = iota
	dedicatedLocal
	dedicatedSplit
	numDedicatedKinds // how many there are
)

// needsDedicatedMap reports whether the port's endpoints are in a map of their own.
func (p *Port) needsDedicatedMap() bool {
	frontends, slots := len(p.Frontends), len(p.Cluster)+len(p.Local)
	product := frontends * slots
	return slots > 0 && frontends > minDedicatedFrontends || frontends > 1 && product > maxSharedElements ||
		product > minDedicatedElements && product > minDedicatedRatio*(frontends+slots)
}

// kindOf returns the kind of a frontend of a port with a dedicated map; false if it does not balance.
func (p *Port) kindOf(frontend *Frontend) (dedicatedKind, bool) {
	switch {
	case !frontend.Class.isBalanced():
		return 0, false
	case frontend.Class.isSplit():
		return dedicatedSplit, true
	case frontend.Local && !frontend.External:
		return dedicatedLocal, true
	}
	return dedicatedCluster, true
}

// classNumber returns the class of a frontend in the maps services and nodeports.
func (p *Port) classNumber(frontend *Frontend) Class {
	if p.hasAffinity(frontend) {
		return p.affinity.stickyClass(frontend.IsNodePort())
	}
	return p.newClientClass(frontend)
}

// newClientClass returns the class for clients for which no endpoint is stored.
func (p *Port) newClientClass(frontend *Frontend) Class {
	if kind, balanced := p.kindOf(frontend); balanced && p.needsDedicatedMap() {
		return p.dedicated[kind]
	}
	return frontend.Class
}

// dedicatedMap returns the dedicated map of a port, by slot: of endpoints, or of their numbers if the port has
// affinity.
func (p *Port) dedicatedMap() Set {
	if p.affinity != nil {
		return newStickyDedicatedMap(p.objectName(stickyPrefix + endpointsPrefix))
	}
	return newDedicatedMap(p.objectName(endpointsPrefix))
}

func newDedicatedMap(name string) Set { return Set{Name: name, Key: classTypes, Value: endpointTypes} }

func newStickyDedicatedMap(name string) Set {
	return Set{Name: name, Key: classTypes, Value: classTypes}
}

// eachDedicatedSlot returns the elements of a port's dedicated map.
func (p *Port) eachDedicatedSlot() iter.Seq[Element] {
	return func(yield func(Element) bool) {
		if p.affinity != nil {
			_ = p.affinity.views[clusterView].eachSlot(Tuple{}, ClusterSlot, p.Cluster, yield) &&
				p.affinity.views[localView].eachSlot(Tuple{}, LocalSlot, p.Local, yield)
			return
		}
		_ = eachSlotOf(Tuple{}, ClusterSlot, p.Cluster, yield) && eachSlotOf(Tuple{}, LocalSlot, p.Local, yield)
	}
}

// usedKinds returns the kinds of the frontends of a port with a dedicated map, each with one of its classes: all of a
// kind have the same.
func (p *Port) usedKinds() map[dedicatedKind]Class {
	used := map[dedicatedKind]Class{}
	for i := range p.Frontends {
		if kind, balanced := p.kindOf(&p.Frontends[i]); balanced {
			used[kind] = p.Frontends[i].Class
		}
	}
	return used
}

// dedicatedChains returns the chains that pick one of the slots of a port with a dedicated map, and send the connection
// there.
func (p *Port) dedicatedChains(config Config) []Chain {
	var chains []Chain
	used := p.usedKinds()
	for kind := range numDedicatedKinds {
		class, isUsed := used[kind]
		if !isUsed {
			continue
		}
		translate := Rule{ProtocolIs{p.ID.Protocol}, DNAT{Key: []Field{Priority}, Map: p.dedicatedMap()}}
		if p.affinity != nil { // the affinity chain sends the connection to the endpoint with the number
			translate = Rule{SetPriority{Key: []Field{Priority}, Map: p.dedicatedMap()}}
		}
		chain := Chain{Name: p.dedicatedChainName(kind), Hook: NoHook}
		first := ClusterSlot
		if kind == dedicatedLocal {
			first = LocalSlot
		}
		if kind == dedicatedSplit {
			then := translate
			if p.affinity != nil {
				then = Rule{translate[0], VerdictStatement{Verdict{Kind: Return}}}
			}
			chain.Rules = append(chain.Rules, pickForOutside(config.matchOutside(p.ID.Family), class.localSlots(), then...))
		}
		if class.slots() == 0 {
			chain.Rules = append(chain.Rules, Rule{VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}}})
		} else {
			chain.Rules = append(chain.Rules, Rule{RandomSlot{Slots: class.slots(), First: first}}, translate)
		}
		chains = append(chains, chain)
	}
	return chains
}

func (p *Port) dedicatedChainName(kind dedicatedKind) string {
	name := p.objectName(balanceChainPrefix)
	if p.affinity != nil {
		name = stickyPrefix + name
	}
	if kind == dedicatedLocal {
		name += localSuffix
	}
	if kind == dedicatedSplit {
		name += choiceSuffix
	}
	return name
}

// assignDedicatedMap assigns the classes of a port with a dedicated map.
func (b *planBuilder) assignDedicatedMap(port *Port) {
	if !port.needsDedicatedMap() {
		return
	}
	dispatch := Dispatch
	if port.affinity != nil {
		dispatch = StickyDispatch
	}
	for kind := range numDedicatedKinds {
		port.dedicated[kind] = b.classOf(port.ID.Family, dispatch, dedicatedClass, port.dedicatedChainName(kind))
	}
}

// classOf returns the class that leads to a chain: the one that the chain's name determines, so that it is the same
// after a restart, or the next one that leads to no other chain.
func (b *planBuilder) classOf(family model.Family, dispatch Set, first Class, chain string) Class {
	return numberedClass(first, chain, func(class Class) string { return b.dispatchTarget(family, dispatch, class) })
}

// dispatchTarget returns the chain to which a class may lead a packet until the next cleanup; empty if there is none.
func (b *planBuilder) dispatchTarget(family model.Family, dispatch Set, class Class) string {
	key := elementKey{family, dispatch.Name, Tuple{Number: uint32(class)}}
	if shared, ok := b.plan.elements[key]; ok {
		return shared.value.Chain
	}
	if shared, ok := b.mirror.elements[key]; ok {
		return shared.value.Chain
	}
	return b.mirror.deferredDeletes[objectKey{family, dispatch.Name}][key.key].Verdict.Chain
}

// replaceDedicatedMaps plans the changes of a Service's dedicated maps. These changes precede those of the chains
// that pick more slots; slots that are not picked any more are left to the cleanup.
func (b *planBuilder) replaceDedicatedMaps(have, want Service) {
	before := have.byID()
	for i := range want.Ports {
		port := &want.Ports[i]
		if !port.needsDedicatedMap() {
			continue
		}
		key := objectKey{port.ID.Family, port.dedicatedMap().Name}
		old := before[port.ID]
		if old == nil || !old.needsDedicatedMap() || old.dedicatedMap().Name != key.name {
			b.fills = append(b.fills, dedicatedMapFill{key, port})
			continue
		}
		deleted, added := difference(old.eachDedicatedSlot(), port.eachDedicatedSlot())
		replaced := b.deferDeletes(key, deleted, added)
		b.plan.Prerequisites.addElements(Delete, key.family, port.dedicatedMap(), replaced)
		b.plan.Prerequisites.addElements(Add, key.family, port.dedicatedMap(), added)
	}
}

// refillDedicatedMaps rewrites the dedicated maps of a family.
func (m *Mirror) refillDedicatedMaps(plan *Plan, family model.Family) {
	for _, service := range plan.services {
		for i := range service.Ports {
			if port := &service.Ports[i]; port.ID.Family == family && port.needsDedicatedMap() {
				plan.Batch.add(Flush, family, SetObject{port.dedicatedMap()})
				plan.Batch.add(Add, family, countedElements(port.dedicatedMap(), port.eachDedicatedSlot()))
			}
		}
	}
}

// dedicatedMapFill is the dedicated map of a port that must be filled.
type dedicatedMapFill struct {
	objectKey
	port *Port
}

func (b *Batch) addElements(verb Verb, family model.Family, set Set, elements []Element) {
	if len(elements) > 0 {
		b.add(verb, family, ElementsObject{Set: set, Elements: slices.Values(elements)})
	}
}
