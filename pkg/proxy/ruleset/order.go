package ruleset

import (
	"reflect"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// finish writes the batches in an order that the kernel accepts: objects before those that refer to them, and deletions
// before additions, because an element with another value is replaced by deleting and adding it.
func (b *planBuilder) finish() *Plan {
	b.addObjects(&b.plan.Prerequisites)
	for index, set := range StaticSets {
		for _, family := range model.Families {
			if set.static.deferred {
				b.deferStaticDeletes(elementsKey{family, index})
			}
		}
	}
	b.addElements(&b.plan.Prerequisites, Add, func(set Set) bool { return set.static.addedFirst })
	b.replaceSourceRanges(&b.plan.Prerequisites, true)
	b.addElements(&b.plan.Batch, Delete, func(Set) bool { return true })
	b.addElements(&b.plan.Batch, Add, func(set Set) bool { return !set.static.addedFirst })
	b.replaceStaticChains(&b.plan.Batch)
	b.replaceSourceRanges(&b.plan.Batch, false)
	return b.plan
}

func (b *planBuilder) addElements(batch *Batch, verb Verb, includes func(Set) bool) {
	elements := b.adds
	if verb == Delete {
		elements = b.deletes
	}
	for _, family := range model.Families {
		for index, set := range StaticSets {
			if includes(set) {
				batch.addElements(verb, family, set, elements[elementsKey{family, index}])
			}
		}
	}
}

// deferStaticDeletes leaves the deletion of elements that are not replaced to the cleanup.
func (b *planBuilder) deferStaticDeletes(key elementsKey) {
	b.deletes[key] = b.deferDeletes(objectKey{key.family, StaticSets[key.set].Name}, b.deletes[key], b.adds[key])
}

// deferDeletes leaves the deletion of elements to the cleanup, and returns those that must be deleted at once because
// another value replaces them. An element that an earlier plan left to the cleanup, and that is added again with
// another value, is replaced too.
func (b *planBuilder) deferDeletes(set objectKey, deletes, adds []Element) (replaced []Element) {
	added := map[Tuple]bool{}
	for _, element := range adds {
		if len(deletes) > 0 {
			added[element.Key] = true
		}
		if deferred, ok := b.mirror.deferredDeletes[set][element.Key]; ok {
			b.plan.resurrected = append(b.plan.resurrected, elementKey{set.family, set.name, element.Key})
			if deferred != element {
				replaced = append(replaced, deferred)
			}
		}
	}
	for _, element := range deletes {
		if added[element.Key] {
			replaced = append(replaced, element)
			continue
		}
		if b.plan.deferredDeletes[set] == nil {
			b.plan.deferredDeletes[set] = map[Tuple]Element{}
		}
		b.plan.deferredDeletes[set][element.Key] = element
	}
	return replaced
}

func (b *planBuilder) addObjects(batch *Batch) {
	for _, key := range sortedKeys(b.plan.sets) {
		want := b.plan.sets[key]
		if want.owners == 0 || b.mirror.sets[key].owners > 0 {
			continue
		}
		batch.add(Add, key.family, SetObject{want.value})
		batch.add(Flush, key.family, SetObject{want.value}) // it may be a leftover with old elements
		b.plan.recreated = append(b.plan.recreated, key)
	}
	for _, fill := range b.fills {
		batch.add(Add, fill.family, countedElements(fill.port.dedicatedMap(), fill.port.eachDedicatedSlot()))
	}
	var chains []objectKey
	for _, key := range sortedKeys(b.plan.chains) {
		want, have := b.plan.chains[key], b.mirror.chains[key]
		if want.owners == 0 || have.owners > 0 && reflect.DeepEqual(want.value, have.value) {
			continue
		}
		chains = append(chains, key)
		batch.add(Add, key.family, ChainObject{want.value})
		batch.add(Flush, key.family, ChainObject{want.value})
	}
	for _, key := range chains { // their rules lead to other chains
		batch.add(Add, key.family, RulesObject{b.plan.chains[key].value})
	}
}
