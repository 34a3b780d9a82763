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
	endpointsPrefix = "endpoints-"
	drawPrefix      = "lb-"
	// Suffixes after the port's name: for a chain of the local view, and for a chain that chooses the view.
	localSuffix  = "/local"
	choiceSuffix = "/external"
	// A port has a dedicated map if its product of frontends and slots is larger than minDedicatedElements and more
	// than minDedicatedRatio times their sum, or larger than maxSharedElements; or if it has more than
	// minDedicatedFrontends, because the class of such a port stays the same when its endpoints change. Its chains are
	// verdicts of the dispatch map, so only few ports should have them.
	minDedicatedElements  = 1024
	wideFactor            = 8
	tooManyElements       = 8192
	minDedicatedFrontends = 256
)

// dedicatedKind selects which endpoints a frontend of a port with a dedicated map may use: those of all nodes, those
// that an internal Local policy allows, or one or the other, depending on the client.
type dedicatedKind int

const (
	wideCluster dedicatedKind = iota
	wideLocal
	wideSplit
	wideKinds // how many there are
)

// needsDedicatedMap reports whether the port's endpoints are in a map of their own.
func (p *Port) needsDedicatedMap() bool {
	frontends, slots := len(p.Frontends), len(p.Cluster)+len(p.Local)
	product := frontends * slots
	return slots > 0 && frontends > minDedicatedFrontends || frontends > 1 && product > tooManyElements ||
		product > minDedicatedElements && product > wideFactor*(frontends+slots)
}

// kindOf returns the kind of a frontend of a port with a dedicated map; false if it does not balance.
func (p *Port) kindOf(frontend *Frontend) (dedicatedKind, bool) {
	switch {
	case !frontend.Class.isBalanced():
		return 0, false
	case frontend.Class.isSplit():
		return wideSplit, true
	case frontend.Local && !frontend.External:
		return wideLocal, true
	}
	return wideCluster, true
}

// classNumber returns the class of a frontend in the maps services and nodeports.
func (p *Port) classNumber(frontend *Frontend) Class {
	if p.hasAffinity(frontend) {
		return p.affinity.stickyClass(frontend.IsNodePort())
	}
	return p.drawClass(frontend)
}

// drawClass returns the class for clients for which no endpoint is stored.
func (p *Port) drawClass(frontend *Frontend) Class {
	if kind, balanced := p.kindOf(frontend); balanced && p.needsDedicatedMap() {
		return p.dedicated[kind]
	}
	return frontend.Class
}

// wideSlots returns the dedicated map of a port, by slot: of endpoints, or of their numbers if the port has affinity.
func (p *Port) wideSlots() Set {
	if p.affinity != nil {
		return stickyWideSet(p.objectName(stickyPrefix + endpointsPrefix))
	}
	return wideSet(p.objectName(endpointsPrefix))
}

func wideSet(name string) Set { return Set{Name: name, Key: class, Value: endpoint} }

func stickyWideSet(name string) Set { return Set{Name: name, Key: class, Value: class} }

// eachWideSlot returns the elements of a port's dedicated map.
func (p *Port) eachWideSlot() iter.Seq[Element] {
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

// wideChains returns the chains that pick one of the slots of a port with a dedicated map, and send the connection
// there.
func (p *Port) wideChains(config Config) []Chain {
	var chains []Chain
	used := p.usedKinds()
	for kind := range wideKinds {
		class, isUsed := used[kind]
		if !isUsed {
			continue
		}
		translate := Rule{ProtocolIs{p.ID.Protocol}, DNAT{Key: []Field{Priority}, Map: p.wideSlots()}}
		if p.affinity != nil { // the affinity chain sends the connection to the endpoint with the number
			translate = Rule{SetPriority{Key: []Field{Priority}, Map: p.wideSlots()}}
		}
		chain := Chain{Name: p.wideChainName(kind), Hook: NoHook}
		first := ClusterSlot
		if kind == wideLocal {
			first = LocalSlot
		}
		if kind == wideSplit {
			then := translate
			if p.affinity != nil {
				then = Rule{translate[0], VerdictStatement{Verdict{Kind: Return}}}
			}
			chain.Rules = append(chain.Rules, drawForOutside(config.outside(p.ID.Family), class.localSlots(), then...))
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

func (p *Port) wideChainName(kind dedicatedKind) string {
	name := p.objectName(drawPrefix)
	if p.affinity != nil {
		name = stickyPrefix + name
	}
	if kind == wideLocal {
		name += localSuffix
	}
	if kind == wideSplit {
		name += choiceSuffix
	}
	return name
}

// assignDedicatedMap assigns the classes of a port with a dedicated map.
func (d *planBuilder) assignDedicatedMap(port *Port) {
	if !port.needsDedicatedMap() {
		return
	}
	dispatch := Dispatch
	if port.affinity != nil {
		dispatch = StickyDispatch
	}
	for kind := range wideKinds {
		port.dedicated[kind] = d.classOf(port.ID.Family, dispatch, dedicatedClass, port.wideChainName(kind))
	}
}

// classOf returns the class that leads to a chain: the one that the chain's name determines, so that it is the same
// after a restart, or the next one that leads to no other chain.
func (d *planBuilder) classOf(family model.Family, dispatch Set, first Class, chain string) Class {
	return numberedClass(first, chain, func(class Class) string { return d.dispatched(family, dispatch, class) })
}

// dispatched returns the chain to which a class may lead a packet until the next cleanup; empty if there is none.
func (d *planBuilder) dispatched(family model.Family, dispatch Set, class Class) string {
	key := elementKey{family, dispatch.Name, Tuple{Number: uint32(class)}}
	if shared, ok := d.plan.elements[key]; ok {
		return shared.value.Chain
	}
	if shared, ok := d.mirror.elements[key]; ok {
		return shared.value.Chain
	}
	return d.mirror.deferredDeletes[objectKey{family, dispatch.Name}][key.key].Verdict.Chain
}

// replaceWide plans the changes of a Service's dedicated maps. They precede those of the chains that pick more slots;
// slots that are not picked any more are left to the cleanup.
func (d *planBuilder) replaceWide(have, want Service) {
	before := have.byID()
	for i := range want.Ports {
		port := &want.Ports[i]
		if !port.needsDedicatedMap() {
			continue
		}
		key := objectKey{port.ID.Family, port.wideSlots().Name}
		old := before[port.ID]
		if old == nil || !old.needsDedicatedMap() || old.wideSlots().Name != key.name {
			d.fill = append(d.fill, dedicatedMap{key, port})
			continue
		}
		deleted, added := difference(old.eachWideSlot(), port.eachWideSlot())
		replaced := d.deferDeletes(key, deleted, added)
		d.plan.Prerequisites.addElements(Delete, key.family, port.wideSlots(), replaced)
		d.plan.Prerequisites.addElements(Add, key.family, port.wideSlots(), added)
	}
}

// refillWide rewrites the dedicated maps of a family.
func (m *Mirror) refillWide(plan *Plan, family model.Family) {
	for _, service := range plan.services {
		for i := range service.Ports {
			if port := &service.Ports[i]; port.ID.Family == family && port.needsDedicatedMap() {
				plan.Batch.add(Flush, family, SetObject{port.wideSlots()})
				plan.Batch.add(Add, family, countedElements(port.wideSlots(), port.eachWideSlot()))
			}
		}
	}
}

// dedicatedMap is the dedicated map of a port that must be filled.
type dedicatedMap struct {
	objectKey
	port *Port
}

func (b *Batch) addElements(verb Verb, family model.Family, set Set, elements []Element) {
	if len(elements) > 0 {
		b.add(verb, family, ElementsObject{Set: set, Elements: slices.Values(elements)})
	}
}
