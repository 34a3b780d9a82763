package ruleset

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Mirror is the content of the kernel's tables according to the accepted commits. Accept changes it, after the kernel
// accepted the batch of a Plan; a plan that failed leaves it unchanged.
//
// Each Service has the version of the latest accepted plan. Objects that several Services share (an lb-N chain, a
// ClusterIP of several ports, a hairpin endpoint of two Services) exist as long as they have an owner, so owners are
// counted.
type Mirror struct {
	tableState

	config   Config
	services map[model.ObjectName]Service
	ports    map[model.Family]int
	// Leftover chains, sets and counters belong to no Service any more and must still be deleted from the kernel.
	leftoverChains   map[objectKey]bool
	leftoverSets     map[objectKey]bool
	leftoverCounters map[objectKey]bool
	leftoverLists    map[listKey]bool
	// cleaning is what the latest batch of Cleanup deletes.
	cleaning cleanupBatch
}

// tableState is the content of the tables apart from what each Service owns. A Mirror has all of it, and a Plan the
// entries that it changes, with their new values.
type tableState struct {
	nodeState NodeState
	// elements are those of the shared sets. Their only value is a verdict, which the key determines.
	elements map[elementKey]refCounted[Verdict]
	chains   map[objectKey]refCounted[Chain]
	// sets are those that ports need in addition to the static ones.
	sets map[objectKey]refCounted[Set]
	// lists are the lists of source ranges; lengths are the lengths of their prefixes, each with the number of lists that
	// have it.
	lists   map[listKey]refCounted[sourceList]
	lengths map[lengthKey]int
	// numbers, shards and timeouts are those of the ports with affinity, each with the number of ports that have it.
	numbers  map[numberKey]int
	shards   map[shardKey]int
	timeouts map[time.Duration]int
	// deferredDeletes are elements that belong to no Service any more, by set: the cleanup deletes them.
	deferredDeletes map[objectKey]map[Tuple]Element
}

func newTableState() tableState {
	return tableState{
		elements:        map[elementKey]refCounted[Verdict]{},
		chains:          map[objectKey]refCounted[Chain]{},
		sets:            map[objectKey]refCounted[Set]{},
		lists:           map[listKey]refCounted[sourceList]{},
		lengths:         map[lengthKey]int{},
		numbers:         map[numberKey]int{},
		shards:          map[shardKey]int{},
		timeouts:        map[time.Duration]int{},
		deferredDeletes: map[objectKey]map[Tuple]Element{},
	}
}

type cleanupBatch struct {
	elements     []elementKey
	sets, chains bool
}

// elementKey identifies an element.
type elementKey struct {
	family model.Family
	set    string
	key    Tuple
}

type objectKey struct {
	family model.Family
	name   string
}

// refCounted is an object that exists as long as it has an owner.
type refCounted[V any] struct {
	value  V
	owners int
}

// addOwner changes the number of owners in a plan, which starts with the mirror's. A new owner sets the value.
func addOwner[K comparable, V any](plan, mirror map[K]refCounted[V], key K, value V, delta int) {
	entry := planned(plan, mirror, key)
	if delta > 0 {
		entry.value = value
	}
	entry.owners += delta
	plan[key] = entry
}

// newMirror returns the mirror of a kernel without our tables.
func newMirror(config Config) *Mirror {
	return &Mirror{
		tableState:       newTableState(),
		config:           config,
		services:         map[model.ObjectName]Service{},
		ports:            map[model.Family]int{},
		leftoverChains:   map[objectKey]bool{},
		leftoverSets:     map[objectKey]bool{},
		leftoverCounters: map[objectKey]bool{},
		leftoverLists:    map[listKey]bool{},
	}
}

// Services returns the number of Services that own something.
func (m *Mirror) Services() int { return len(m.services) }

// Service returns what a Service owns; it has no ports if it owns nothing.
func (m *Mirror) Service(name model.ObjectName) Service {
	service := m.services[name]
	service.Name = name
	return service
}

// NodeState returns the node state that the tables hold.
func (m *Mirror) NodeState() NodeState { return m.nodeState }

// Accept applies a plan to the mirror, after the kernel accepted its batch.
func (m *Mirror) Accept(plan *Plan) {
	m.nodeState = plan.nodeState
	for _, service := range plan.services {
		m.countPorts(m.services[service.Name], -1)
		m.countPorts(service, +1)
		if len(service.Ports) == 0 {
			delete(m.services, service.Name)
			continue
		}
		m.services[service.Name] = service
	}
	for key, shared := range plan.elements {
		if shared.owners == 0 {
			delete(m.elements, key)
			continue
		}
		m.elements[key] = shared
	}
	for _, key := range plan.resurrected {
		m.cancelDeferredDelete(key)
	}
	for _, key := range plan.recreated {
		delete(m.deferredDeletes, key)
	}
	for key, deletes := range plan.deferredDeletes {
		if m.deferredDeletes[key] == nil {
			m.deferredDeletes[key] = deletes
			continue
		}
		maps.Copy(m.deferredDeletes[key], deletes)
	}
	acceptObjects(m.chains, plan.chains, m.leftoverChains)
	acceptObjects(m.sets, plan.sets, m.leftoverSets)
	m.acceptLists(plan)
	acceptCounts(m.numbers, plan.numbers)
	acceptCounts(m.shards, plan.shards)
	acceptCounts(m.timeouts, plan.timeouts)
}

// adopt is Accept for an empty mirror and a plan that is not used again: it takes the plan's maps without copying them.
func (m *Mirror) adopt(plan *Plan) {
	m.tableState = plan.tableState
	m.services = make(map[model.ObjectName]Service, len(plan.services))
	for _, service := range plan.services {
		m.countPorts(service, +1)
		if len(service.Ports) > 0 {
			m.services[service.Name] = service
		}
	}
}

func (m *Mirror) countPorts(service Service, delta int) {
	for i := range service.Ports {
		m.ports[service.Ports[i].ID.Family] += delta
	}
}

// acceptObjects takes over chains or sets. One that lost its last owner is a leftover until the cleanup.
func acceptObjects[V any](have, planned map[objectKey]refCounted[V], leftover map[objectKey]bool) {
	for key, entry := range planned {
		if entry.owners > 0 {
			have[key] = entry
			delete(leftover, key)
			continue
		}
		if _, existed := have[key]; existed {
			delete(have, key)
			leftover[key] = true
		}
	}
}

// Cleanup returns the next batch that deletes what no Service owns any more, with at most limit elements; an empty one
// if nothing is left. After its commit, call CleanupDone and Cleanup again.
//
// Elements and sets are deleted first, and chains in a batch of their own: elements may lead to a chain, and kernels
// before 6.2 report a chain as busy in the batch that removes the last element that leads to it.
func (m *Mirror) Cleanup(limit int) Batch {
	var batch Batch
	m.cleaning = cleanupBatch{}
	if !m.cleanUpElements(&batch, limit) {
		return batch
	}
	m.cleaning.sets, m.cleaning.chains = len(m.leftoverSets) > 0, m.onlyChainsLeft()
	if m.cleaning.chains || m.cleaning.sets { // the rules of the chains use the sets
		for _, key := range sortedKeys(m.leftoverChains) {
			batch.add(Flush, key.family, ChainObject{Chain{Name: key.name}})
		}
	}
	for _, key := range sortedKeys(m.leftoverSets) {
		batch.add(Delete, key.family, SetObject{Set{Name: key.name}})
	}
	if m.cleaning.chains {
		for _, key := range sortedKeys(m.leftoverChains) {
			batch.add(Delete, key.family, ChainObject{Chain{Name: key.name}})
		}
		for _, key := range sortedKeys(m.leftoverCounters) { // rules of the chains use them
			batch.add(Delete, key.family, CounterObject{key.name})
		}
	}
	return batch
}

// IsClean reports whether nothing is left to clean up.
func (m *Mirror) IsClean() bool {
	return m.onlyChainsLeft() && len(m.leftoverChains) == 0 && len(m.leftoverCounters) == 0
}

// onlyChainsLeft reports whether only chains and counters may be left to clean up.
func (m *Mirror) onlyChainsLeft() bool {
	return len(m.leftoverSets) == 0 && len(m.deferredDeletes) == 0
}

// cleanUpElements deletes elements, and reports whether these are all.
func (m *Mirror) cleanUpElements(batch *Batch, limit int) bool {
	keys := slices.SortedFunc(maps.Keys(m.deferredDeletes), func(a, b objectKey) int {
		return cmp.Or(
			cmp.Compare(a.family, b.family), cmp.Compare(uint(staticRank(a.name)), uint(staticRank(b.name))), cmp.Compare(a.name, b.name))
	})
	for _, key := range keys {
		var elements []Element
		for _, element := range m.deferredDeletes[key] {
			if len(m.cleaning.elements) == limit {
				break
			}
			elements = append(elements, element)
			m.cleaning.elements = append(m.cleaning.elements, elementKey{key.family, key.name, element.Key})
		}
		sortElements(elements)
		batch.addElements(Delete, key.family, setOf(key.name), elements)
		if len(elements) < len(m.deferredDeletes[key]) {
			return false
		}
	}
	return true
}

// CleanupDone forgets what the batch of Cleanup deleted, after the kernel accepted it.
func (m *Mirror) CleanupDone() {
	for _, element := range m.cleaning.elements {
		m.cancelDeferredDelete(element)
	}
	if m.cleaning.sets {
		m.leftoverSets = map[objectKey]bool{}
	}
	if m.cleaning.chains {
		m.leftoverChains, m.leftoverCounters = map[objectKey]bool{}, map[objectKey]bool{}
	}
	m.cleaning = cleanupBatch{}
}

func (m *Mirror) cancelDeferredDelete(element elementKey) {
	set := objectKey{element.family, element.set}
	if delete(m.deferredDeletes[set], element.key); len(m.deferredDeletes[set]) == 0 {
		delete(m.deferredDeletes, set) // otherwise the cleanup would never reach the chains
		if element.set == Sources.Name {
			m.freeLists(element.family)
		}
	}
}
