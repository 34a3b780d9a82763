package ruleset

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// FullSync makes the plan that brings the kernel to exactly the given Services and node state, whatever it holds now.
// Services are added in parts: by Add or by AddEarly, never by both.
type FullSync struct {
	mirror  *Mirror
	builder *planBuilder
	found   map[model.Family]Objects
	// early is set once AddEarly has created the tables and the static sets.
	early bool
}

// NewFullSync returns a FullSync without Services. found is what the kernel has in each family.
func NewFullSync(config Config, found map[model.Family]Objects) *FullSync {
	mirror := newMirror(config)
	builder := mirror.newPlanBuilder()
	builder.restored = map[model.Family]*restoredNumbers{}
	for family, objects := range found {
		if !objects.NeedsRecreate {
			builder.restored[family] = newRestoredNumbers(objects)
		}
	}
	builder.ownPreallocated()
	return &FullSync{mirror: mirror, builder: builder, found: found}
}

// Add adds some Services. Each Service may be added at most once.
func (f *FullSync) Add(wanted []Service) {
	for _, want := range wanted {
		f.builder.replaceOwner(Service{}, f.builder.withTableState(want, Service{}))
	}
}

// AddEarly does what Add does, and returns a batch with most of what these Services own, which the kernel must accept
// before the plan. It is for a kernel without our table: no packet reaches the elements of these batches until the plan
// adds the chains.
func (f *FullSync) AddEarly(wanted []Service) Batch {
	var batch Batch
	if !f.early {
		f.early = true
		for _, family := range f.mirror.config.Families {
			batch.add(Add, family, TableObject{})
			for _, set := range StaticSets {
				batch.add(Add, family, SetObject{set})
			}
		}
	}
	start := len(f.builder.plan.services)
	f.Add(wanted)
	services := f.builder.plan.services[start:]
	batch.Weight = weightOf(services)
	for _, family := range f.mirror.config.Families {
		for _, set := range StaticSets {
			if set.isEarly() {
				batch.add(Add, family, countedElements(set, elementsOf(services, family, set)))
			}
		}
	}
	return batch
}

// isEarly reports whether a static set may be filled before there are chains: only if it holds no verdicts, and nothing
// that several Services share, because the number of their owners is known only at the end.
func (s Set) isEarly() bool { return s.static.ports != nil && !isShared(s) }

// Rollback returns the batch that removes everything that the batches of AddEarly added, also if only some were
// applied.
func (f *FullSync) Rollback() Batch {
	var batch Batch
	for _, family := range f.mirror.config.Families {
		batch.add(Add, family, TableObject{}) // if the first batch failed there would be no table to delete
		batch.add(Delete, family, TableObject{})
	}
	return batch
}

// Finish returns a mirror that holds exactly the Services and the node state, and the plan that brings the kernel to it
// in its one Batch: packets see the old rules or the new ones. Clients keep their affinity if the maps and the numbers
// still exist. The mirror is valid only once the kernel accepted the plan's batch.
func (f *FullSync) Finish(nodeState NodeState) (*Mirror, *Plan) {
	plan := f.builder.plan
	plan.nodeState = nodeState
	for key, list := range plan.lists {
		f.builder.countLengths(key.family, list.value, +1)
	}
	f.mirror.adopt(plan)
	if !f.early {
		plan.Batch.Weight = weightOf(plan.services)
	}
	for _, family := range f.mirror.config.Families {
		f.refill(family)
	}
	return f.mirror, plan
}

func weightOf(services []Service) int {
	weight := 0
	for i := range services {
		weight += services[i].Weight()
	}
	return weight
}

// refill appends the operations that make one family's table match the mirror.
func (f *FullSync) refill(family model.Family) {
	batch, found := &f.builder.plan.Batch, f.found[family]
	if found.Table && found.NeedsRecreate {
		batch.add(Delete, family, TableObject{})
		found = Objects{}
	}
	batch.add(Add, family, TableObject{})
	counters := Counters(family, f.mirror.config)
	for _, name := range counters {
		batch.add(Add, family, CounterObject{name})
	}
	f.refillSets(family)
	chains := f.mirror.refillChains(batch, family)
	for _, set := range StaticSets {
		if !f.early || !set.isEarly() {
			batch.add(Add, family, countedElements(set, f.mirror.allElements(f.builder.plan, family, set)))
		}
	}
	f.mirror.recordLeftovers(family, found, chains)
	for _, name := range found.Counters {
		if !slices.Contains(counters, name) {
			f.mirror.leftoverCounters[objectKey{family, name}] = true
		}
	}
}

// refillSets declares every set and flushes the static ones, unless AddEarly created them.
func (f *FullSync) refillSets(family model.Family) {
	plan := f.builder.plan
	for _, set := range StaticSets {
		if !f.early {
			plan.Batch.add(Add, family, SetObject{set})
			plan.Batch.add(Flush, family, SetObject{set})
		}
	}
	for _, key := range sortedKeys(f.mirror.sets) {
		if key.family != family {
			continue
		}
		plan.Batch.add(Add, family, SetObject{f.mirror.sets[key].value})
	}
	f.mirror.refillDedicatedMaps(plan, family)
}

// refillChains declares every chain before it adds rules, which refer to other chains.
func (m *Mirror) refillChains(batch *Batch, family model.Family) []Chain {
	chains := append(StaticChains(family, m.config, m.nodeState), SourceRangesChain(lengthsOf(family, m.lengths)))
	for _, key := range sortedKeys(m.chains) {
		if key.family == family {
			chains = append(chains, m.chains[key].value)
		}
	}
	// In the order of Print: nft lists chains in the order of their creation.
	slices.SortFunc(chains, func(a, b Chain) int { return a.compare(&b) })
	for _, chain := range chains {
		batch.add(Add, family, ChainObject{chain})
		batch.add(Flush, family, ChainObject{chain})
	}
	for _, chain := range chains {
		batch.add(Add, family, RulesObject{chain})
	}
	return chains
}

// recordLeftovers records the chains and sets that the kernel has and no Service needs, for the cleanup after the
// commit.
func (m *Mirror) recordLeftovers(family model.Family, found Objects, chains []Chain) {
	for _, name := range found.Chains {
		m.leftoverChains[objectKey{family, name}] = true
	}
	for _, chain := range chains {
		delete(m.leftoverChains, objectKey{family, chain.Name})
	}
	for _, name := range found.Sets {
		if _, wanted := m.sets[objectKey{family, name}]; staticRank(name) < 0 && !wanted {
			m.leftoverSets[objectKey{family, name}] = true
		}
	}
}

// allElements returns all elements that a set of a family should have. It walks the plan's Services rather than the
// mirror's, because they are contiguous in memory.
func (m *Mirror) allElements(plan *Plan, family model.Family, set Set) iter.Seq[Element] {
	if elements := set.static.nodeState; elements != nil {
		return elements(m.nodeState, family)
	}
	if set.static.lists {
		return m.allSources(family)
	}
	if isShared(set) {
		return func(yield func(Element) bool) {
			for key, shared := range m.elements {
				if key.family == family && key.set == set.Name && !yield(Element{Key: key.key, Verdict: shared.value}) {
					return
				}
			}
		}
	}
	if set.static.ports == nil || m.ports[family] == 0 {
		return func(func(Element) bool) {}
	}
	return elementsOf(plan.services, family, set)
}

// elementsOf returns the elements of some Services in one set of one family.
func elementsOf(services []Service, family model.Family, set Set) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		for i := range services {
			if !services[i].each(family, set, yield) {
				return
			}
		}
	}
}

func sortedKeys[V any](objects map[objectKey]V) []objectKey {
	return slices.SortedFunc(maps.Keys(objects), func(a, b objectKey) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.name, b.name))
	})
}

// Objects is the content of a family's table in the kernel, as far as a full sync or a comparison needs it.
type Objects struct {
	// Table reports whether the table exists.
	Table bool
	// NeedsRecreate reports whether the table cannot be changed into the desired one: it must be deleted and added again,
	// in the same batch.
	NeedsRecreate bool
	Chains        []string
	Sets          []string
	Counters      []string
	// Contents are the elements of sets, by the set's name: for a full sync, of those that RestoredSet returns; for a
	// comparison, of all.
	Contents map[string][]Element
}

// Add records the elements of a set.
func (o *Objects) Add(name string, contents []Element) {
	if o.Contents == nil {
		o.Contents = map[string][]Element{}
	}
	o.Contents[name] = contents
}

var restoredSets = []Set{StickyPorts, NodePortStickyPorts, StickyOutside, NodePortStickyOutside, NumberedCollided}

// RestoredSet returns the set of a name if its elements must be read before a full sync: clients' endpoints are stored
// by the numbers of Service ports, and of endpoints whose hashes collide.
func RestoredSet(name string) (set Set, ok bool) {
	i := slices.IndexFunc(restoredSets, func(set Set) bool { return set.Name == name })
	if i < 0 {
		return Set{}, false
	}
	return restoredSets[i], true
}
