package ruleset

import (
	"bufio"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// For tests only.

// PlanFullSync returns the result of a FullSync with all Services at once.
func PlanFullSync(config Config, wanted []Service, nodeState NodeState, found map[model.Family]Objects) (*Mirror, *Plan) {
	fullSync := NewFullSync(config, found)
	fullSync.Add(wanted)
	return fullSync.Finish(nodeState)
}

// FirstClass, LastClass and LastSlot bound the two ranges of numbers that a packet's priority carries.
const (
	FirstClass = uint32(splitClass)
	LastClass  = uint32(lastClass)
	LastSlot   = ClusterSlot | 0xffffff
)

// IsSplit reports whether the class treats clients from outside differently from others.
func (c Class) IsSplit() bool { return c.isSplit() }

// IsBalanced reports whether the class leads to an lb chain.
func (c Class) IsBalanced() bool { return c.isBalanced() }

// Slots returns the number of slots of a class that is balanced.
func (c Class) Slots() int { return c.slots() }

// LocalSlots returns the number of local slots of a class that is split.
func (c Class) LocalSlots() int { return c.localSlots() }

// RandomSlotChain returns the chain that the dispatch map leads a class to.
func RandomSlotChain(family model.Family, config Config, class Class) Chain {
	return randomSlotChain(family, config, class)
}

// PreallocatedSlots is the largest number of slots whose class every table has.
const PreallocatedSlots = preallocatedSlots

// DispatchOf returns the verdict of a class in the dispatch map.
func DispatchOf(class Class) Verdict { return dispatchOf(class) }

// NumberedClass returns the class that leads to a chain.
func NumberedClass(first Class, chain string, nameOf func(Class) string) Class {
	return numberedClass(first, chain, nameOf)
}

// Text returns the chain as nft writes it.
func (c *Chain) Text(family model.Family) string {
	var text strings.Builder
	buffered := bufio.NewWriter(&text)
	c.print(buffered, family)
	_ = buffered.Flush() // a Builder never fails
	return text.String()
}

// Elements returns the elements that the port owns in one of the static sets.
func (p *Port) Elements(set Set) iter.Seq[Element] {
	return func(yield func(Element) bool) { p.each(set, yield) }
}

// SizeClasses returns how many endpoints a port can have in each size class.
func SizeClasses() []int {
	capacities := make([]int, len(sizeClasses))
	for i, size := range sizeClasses {
		capacities[i] = size.capacity()
	}
	return capacities
}

// PortNumbers returns how many numbers for ports each size class has.
func PortNumbers() []int {
	numbers := make([]int, len(sizeClasses))
	for i, size := range sizeClasses {
		numbers[i] = 1 << (24 - size.bits)
	}
	return numbers
}

// Shards returns how many shards each size class has.
func Shards() []int {
	shards := make([]int, len(sizeClasses))
	for i, size := range sizeClasses {
		shards[i] = int(size.shards)
	}
	return shards
}

// NumberKind returns the kind of a number of session affinity: its size class, and whether it is a port's or an
// endpoint's.
func NumberKind(number uint32) (size int, isEndpoint, ok bool) {
	class := sizeClassOf(number)
	return slices.Index(sizeClasses, class), number&endpointFlag != 0, class != nil
}

// PortOf returns the number of the port to which an endpoint's number belongs.
func PortOf(endpoint uint32) uint32 { return sizeClassOf(endpoint).portOf(endpoint) }

// NumberOf returns the number of an endpoint of a port if its address alone determines it.
func NumberOf(port uint32, endpoint netip.AddrPort) uint32 {
	return port | endpointFlag | sizeClassOf(port).firstChoice(endpoint)
}

// ShardOf returns the shard of a port's number.
func ShardOf(port uint32) uint32 { return sizeClassOf(port).shardOf(port) }

// NoPort is the number of a port without endpoints.
const NoPort = noPort

// Limits of session affinity.
const (
	MaxTimeouts  = maxTimeouts
	EndpointFlag = endpointFlag
)

// StickyClass returns the class of the frontends of ports with the given timeout and shard.
func StickyClass(timeout time.Duration, shard uint32, nodePorts bool) Class {
	return (&affinityState{timeout: timeout, shard: shard}).stickyClass(nodePorts)
}

// AffinityState is the session affinity of a Service port.
type AffinityState struct {
	Timeout          time.Duration
	SizeClass, Shard int
	Views            [2]Numbering // for all nodes, and for what a Local policy allows
}

// Numbering is the number of a port in one view, zero if it has no endpoints, and those of its endpoints.
type Numbering struct {
	Port      uint32
	Endpoints map[netip.AddrPort]uint32
}

// AffinityOf returns the port's session affinity; nil if there is none.
func (p *Port) AffinityOf() *AffinityState {
	if p.affinity == nil {
		return nil
	}
	state := &AffinityState{Timeout: p.affinity.timeout, SizeClass: slices.Index(sizeClasses, p.affinity.sizeClass),
		Shard: int(p.affinity.shard)}
	for view, numbering := range p.affinity.views {
		state.Views[view] = Numbering{numbering.port, map[netip.AddrPort]uint32{}}
		for _, endpoint := range numbering.endpoints {
			state.Views[view].Endpoints[endpoint.addr] = endpoint.number
		}
	}
	return state
}

// Equal reports whether two mirrors hold the same, except for what depends on history: the order of slots, the numbers
// of session affinity, and the shard that a port has.
func (m *Mirror) Equal(other *Mirror) bool {
	sameService := func(a, b Service) bool { return reflect.DeepEqual(a.withoutHistory(), b.withoutHistory()) }
	return maps.EqualFunc(m.services, other.services, sameService) &&
		slices.Equal(m.nodeState.NodePortAddrs, other.nodeState.NodePortAddrs) &&
		slices.Equal(m.nodeState.ServiceCIDRs, other.nodeState.ServiceCIDRs) &&
		reflect.DeepEqual(m.withoutHistory(), other.withoutHistory())
}

// withoutHistory returns what a mirror holds apart from Services, with all shards taken together.
func (m *Mirror) withoutHistory() any {
	type late struct {
		set objectKey
		key Tuple
	}
	type timeless struct {
		elements  map[elementKey]refCounted[Verdict]
		chains    map[objectKey]refCounted[Chain]
		sets      map[objectKey]refCounted[Set]
		lists     map[listKey]refCounted[sourceList]
		lengths   map[lengthKey]int
		timeouts  map[time.Duration]int
		late      map[late]Element
		leftovers map[objectKey]int
		// the number of port numbers, and of ports in all shards
		numbers, sharing int
	}
	result := timeless{
		map[elementKey]refCounted[Verdict]{}, map[objectKey]refCounted[Chain]{}, map[objectKey]refCounted[Set]{}, m.lists, m.lengths, m.timeouts,
		map[late]Element{},
		map[objectKey]int{}, len(m.numbers), 0,
	}
	for key, shared := range m.elements {
		key.key.Number = withoutShard(key.key.Number)
		shared.value.Chain = withoutShardName(shared.value.Chain)
		shared.owners += result.elements[key].owners
		result.elements[key] = shared
	}
	for key, owned := range m.chains {
		if anyShard := withoutShardName(key.name); anyShard != key.name { // its rules contain the shard and the size class
			key.name, owned.value = anyShard, Chain{}
		}
		owned.owners += result.chains[key].owners
		result.chains[key] = owned
	}
	for key, owned := range m.sets {
		key.name = withoutShardName(key.name)
		owned.value.Name = key.name
		owned.owners += result.sets[key].owners
		result.sets[key] = owned
	}
	for set, elements := range m.deferredDeletes {
		for key, element := range elements {
			key.Number = withoutShard(key.Number)
			element.Key.Number, element.Value.Number = key.Number, 0
			element.Verdict.Chain = withoutShardName(element.Verdict.Chain)
			result.late[late{set, key}] = element
		}
	}
	for _, leftovers := range []map[objectKey]bool{m.leftoverChains, m.leftoverSets, m.leftoverCounters} {
		for key := range leftovers {
			result.leftovers[objectKey{key.family, withoutShardName(key.name)}]++
		}
	}
	for _, owners := range m.shards {
		result.sharing += owners
	}
	return result
}

// withoutShard clears the shard in a class of ports with affinity.
func withoutShard(number uint32) uint32 {
	if number>>24 == uint32(stickyClass)>>24 {
		number &^= 0x1f << 1
	}
	return number
}

// shardSuffix matches names that end with a shard.
var shardSuffix = regexp.MustCompile(`^(affinity-|(nodeport-)?sticky-\d+-)\d+$`)

// withoutShardName removes the shard from the name of a chain or of a map.
func withoutShardName(name string) string { return shardSuffix.ReplaceAllString(name, "$1") }

// withoutHistory returns a Service with its slots in order, and without numbers.
func (s Service) withoutHistory() Service {
	sorted := func(slots []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(slots), netip.AddrPort.Compare)
	}
	ports := slices.Clone(s.Ports)
	for i := range ports {
		ports[i].Cluster, ports[i].Local, ports[i].OnNode = sorted(ports[i].Cluster), sorted(ports[i].Local), sorted(ports[i].OnNode)
		ports[i].affinity = ports[i].affinity.withoutNumbers()
	}
	return Service{Name: s.Name, Ports: ports}
}

// withoutNumbers keeps only the timeout, and the endpoints of each view.
func (a *affinityState) withoutNumbers() *affinityState {
	if a == nil {
		return nil
	}
	bare := &affinityState{timeout: a.timeout}
	for view, numbering := range a.views {
		for _, endpoint := range numbering.endpoints {
			bare.views[view].endpoints = append(bare.views[view].endpoints, numberedEndpoint{addr: endpoint.addr})
		}
	}
	return bare
}

// Names returns the Services that own something, sorted.
func (m *Mirror) Names() []model.ObjectName {
	return slices.SortedFunc(maps.Keys(m.services), model.ObjectName.Compare)
}

// WithoutAffinity returns a Service as it would be without session affinity, with its slots as they are.
func (s Service) WithoutAffinity() Service {
	ports := slices.Clone(s.Ports)
	for i := range ports {
		ports[i].Affinity, ports[i].affinity = 0, nil
	}
	return Service{Name: s.Name, Ports: ports}
}

// FirstPortNumber returns the number that a port has in a size class, a shard and a view if no other port has it.
func FirstPortNumber(port Port, size int, shard uint32, view int) uint32 {
	return newMirror(Config{}).newPlanBuilder().freeNumber(&port, &affinityState{sizeClass: sizeClasses[size], shard: shard}, viewKind(view))
}

// Sets returns the sets that the port needs in addition to the static ones.
func (p *Port) Sets() []Set { return p.sets() }

// SetOf returns a static set, or the dedicated map of a port, by its name; a set of another kind if it has no such
// name.
func SetOf(name string) Set {
	if set, restored := RestoredSet(name); restored {
		return set
	}
	return setOf(name)
}

// IsDeletionDeferred reports whether an element waits for the cleanup, perhaps with the whole set.
func (m *Mirror) IsDeletionDeferred(family model.Family, set string, key Tuple) bool {
	setKey := objectKey{family, set}
	_, deferred := m.deferredDeletes[setKey][key]
	return deferred || m.leftoverSets[setKey]
}

// ListNumbers returns the numbers of lists of source ranges that no other list may have.
func (m *Mirror) ListNumbers() []Class {
	var numbers []Class
	for key := range m.lists {
		numbers = append(numbers, key.class)
	}
	return numbers
}

// Ports returns the number of Service ports of a family that own something.
func (m *Mirror) Ports(family model.Family) int { return m.ports[family] }
