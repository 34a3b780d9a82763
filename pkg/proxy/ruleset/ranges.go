package ruleset

import (
	"iter"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// fewRanges is how many ranges are deleted one by one. For each of them the kernel works through the whole set
// (nft_pipapo_remove): a controller that writes new lists to a hundred load balancers would stop every other change
// for seconds.
const fewRanges = 100

// replaceRanges makes allowed-sources anew with what it shall hold, in a transaction of its own before the others. The
// kernel shows the ranges a moment after the rule that looks into them, so that clients which may dial may have to
// send their first packet again: the price of not standing still.
func (d *draft) replaceRanges(family model.Family) {
	where := elementsKey{family, staticRank(AllowedSources.Name)}
	delete(d.deletes, where)
	delete(d.adds, where)
	chains := StaticChains(family, d.mirror.config, d.mirror.surroundings)
	services := chains[slices.IndexFunc(chains, func(chain Chain) bool { return chain.Name == servicesChain })]
	batch := &d.plan.Prepare
	dropRanges(batch, family)
	batch.add(Add, family, ElementsObject{Set: AllowedSources, Elements: slices.Values(d.allRanges(family))})
	batch.add(Add, family, RulesObject{services})
}

// allRanges returns the ranges of all Services as they shall be.
func (d *draft) allRanges(family model.Family) []Element {
	planned := make(map[model.ObjectName]bool, len(d.plan.services))
	var all []Element
	take := func(service Service) {
		service.each(family, AllowedSources, func(element Element) bool {
			all = append(all, element)
			return true
		})
	}
	for _, service := range d.plan.services {
		planned[service.Name] = true
		take(service)
	}
	for name, service := range d.mirror.services {
		if !planned[name] {
			take(service)
		}
	}
	sortElements(all) // they come from a map, and batches are the same each time
	return all
}

// refillRanges deletes what a resync finds in allowed-sources and does not want, and returns what is to be added.
func (m *Mirror) refillRanges(plan *Plan, family model.Family, found Objects) iter.Seq[Element] {
	wanted := m.allElements(plan, family, AllowedSources)
	deleted, added := difference(slices.Values(found.Ranges), wanted)
	switch {
	case len(deleted) > fewRanges:
		dropRanges(&plan.Batch, family)
		return wanted
	case len(deleted) > 0:
		plan.Batch.add(Delete, family, ElementsObject{Set: AllowedSources, Elements: slices.Values(deleted)})
	}
	return slices.Values(added)
}

// dropRanges empties allowed-sources by making it anew. The rule that looks into it goes first, and has to be written
// again. A stranger may have taken the chain away.
func dropRanges(batch *Batch, family model.Family) {
	services := ChainObject{Chain{Name: servicesChain, Hook: NoHook}}
	batch.add(Add, family, services)
	batch.add(Flush, family, services)
	batch.add(Delete, family, SetObject{AllowedSources})
	batch.add(Add, family, SetObject{AllowedSources})
}
