package ruleset

import (
	"reflect"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// finish writes the batches in an order that the kernel accepts: objects before those that refer to them, and deletions
// before additions, because an element with another value is replaced by deleting and adding it.
func (d *planBuilder) finish() *Plan {
	d.addObjects(&d.plan.Prerequisites)
	for index, set := range StaticSets {
		for _, family := range model.Families {
			if set.static.deferred {
				d.deferDelete(elementsKey{family, index})
			}
		}
	}
	d.addElements(&d.plan.Prerequisites, Add, func(set Set) bool { return set.static.addedFirst })
	d.replaceSourceRanges(&d.plan.Prerequisites, true)
	d.addElements(&d.plan.Batch, Delete, func(Set) bool { return true })
	d.addElements(&d.plan.Batch, Add, func(set Set) bool { return !set.static.addedFirst })
	d.replaceStaticChains(&d.plan.Batch)
	d.replaceSourceRanges(&d.plan.Batch, false)
	return d.plan
}

func (d *planBuilder) addElements(batch *Batch, verb Verb, wanted func(Set) bool) {
	elements := d.adds
	if verb == Delete {
		elements = d.deletes
	}
	for _, family := range model.Families {
		for index, set := range StaticSets {
			if wanted(set) {
				batch.addElements(verb, family, set, elements[elementsKey{family, index}])
			}
		}
	}
}

// deferDelete leaves the deletion of elements that are not replaced to the cleanup.
func (d *planBuilder) deferDelete(where elementsKey) {
	d.deletes[where] = d.deferDeletes(objectKey{where.family, StaticSets[where.set].Name}, d.deletes[where], d.adds[where])
}

// deferDeletes leaves the deletion of elements to the cleanup, and returns those that must be deleted at once because
// another value replaces them. An element that an earlier plan left to the cleanup, and that is added again with
// another value, is replaced too.
func (d *planBuilder) deferDeletes(set objectKey, deletes, adds []Element) (replaced []Element) {
	added := map[Tuple]bool{}
	for _, element := range adds {
		if len(deletes) > 0 {
			added[element.Key] = true
		}
		if late, ok := d.mirror.deferredDeletes[set][element.Key]; ok {
			d.plan.resurrected = append(d.plan.resurrected, elementKey{set.family, set.name, element.Key})
			if late != element {
				replaced = append(replaced, late)
			}
		}
	}
	for _, element := range deletes {
		if added[element.Key] {
			replaced = append(replaced, element)
			continue
		}
		if d.plan.deferredDeletes[set] == nil {
			d.plan.deferredDeletes[set] = map[Tuple]Element{}
		}
		d.plan.deferredDeletes[set][element.Key] = element
	}
	return replaced
}

func (d *planBuilder) addObjects(batch *Batch) {
	for _, key := range sortedKeys(d.plan.sets) {
		want := d.plan.sets[key]
		if want.owners == 0 || d.mirror.sets[key].owners > 0 {
			continue
		}
		batch.add(Add, key.family, SetObject{want.value})
		batch.add(Flush, key.family, SetObject{want.value}) // it may be a leftover with old elements
		d.plan.recreated = append(d.plan.recreated, key)
	}
	for _, wide := range d.fill {
		batch.add(Add, wide.family, countedElements(wide.port.wideSlots(), wide.port.eachWideSlot()))
	}
	var chains []objectKey
	for _, key := range sortedKeys(d.plan.chains) {
		want, have := d.plan.chains[key], d.mirror.chains[key]
		if want.owners == 0 || have.owners > 0 && reflect.DeepEqual(want.value, have.value) {
			continue
		}
		chains = append(chains, key)
		batch.add(Add, key.family, ChainObject{want.value})
		batch.add(Flush, key.family, ChainObject{want.value})
	}
	for _, key := range chains { // their rules lead to other chains
		batch.add(Add, key.family, RulesObject{d.plan.chains[key].value})
	}
}
