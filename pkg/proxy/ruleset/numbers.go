package ruleset

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Numbers of Service ports with affinity, and of their endpoints. A restart does not change them. Those of ports are
// read back from the kernel. Those of endpoints are a hash, and are read back only if the hashes of two endpoints of a
// port collide: these have a map of their own, and the other map is never read, because the kernel's time for that
// grows with the square of its size.

// numbering is the number of a port in one view, and the numbers of its endpoints. The zero value is a view that no
// frontend uses, or that has no endpoints.
type numbering struct {
	port      uint32
	endpoints []numberedEndpoint // sorted by address
}

type numberedEndpoint struct {
	addr     netip.AddrPort
	number   uint32
	collided bool // the number does not follow from the address
}

func (n numbering) find(endpoint netip.AddrPort) (index int, found bool) {
	return slices.BinarySearchFunc(n.endpoints, endpoint, func(one numberedEndpoint, addr netip.AddrPort) int {
		return one.addr.Compare(addr)
	})
}

// eachSlot yields the number of the endpoint in each slot.
func (n numbering) eachSlot(key Tuple, first uint32, slots []netip.AddrPort, yield func(Element) bool) bool {
	element := Element{Key: key}
	for slot, endpoint := range slots {
		index := slot // correct while slots are in the order of addresses, as initially
		if index >= len(n.endpoints) || n.endpoints[index].addr != endpoint {
			index, _ = n.find(endpoint)
		}
		element.Key.Number, element.Value.Number = first+uint32(slot), n.endpoints[index].number
		if !yield(element) {
			return false
		}
	}
	return true
}

// renumbered returns a view's numbers for its current endpoints. An endpoint that remains keeps its number; a new one
// never gets the number of a removed one, because it would inherit that one's clients.
func (n numbering) renumbered(size *sizeClass, endpoints []netip.AddrPort) []numberedEndpoint {
	numbered := make([]numberedEndpoint, len(endpoints))
	var small [256]bool // on the stack, enough for nearly all ports
	taken := small[:]
	if size.capacity() > len(small) {
		taken = make([]bool, size.capacity())
	}
	assign := func(i int, offset uint32, collided bool) {
		taken[offset] = true
		numbered[i] = numberedEndpoint{endpoints[i], n.port | endpointFlag | offset, collided}
	}
	for _, old := range n.endpoints {
		taken[size.endpointOf(old.number)] = true
	}
	var unassigned []int
	for i, endpoint := range endpoints {
		if index, found := n.find(endpoint); found {
			numbered[i] = n.endpoints[index]
		} else if offset := size.firstChoice(endpoint); !taken[offset] {
			assign(i, offset, false)
		} else {
			unassigned = append(unassigned, i)
		}
	}
	free := uint32(0) // a single scan for all, whatever the addresses are
	for _, i := range unassigned {
		for taken[free] {
			free++
		}
		assign(i, free, true)
	}
	return numbered
}

func hashOf(endpoint netip.AddrPort) uint32 {
	hash := model.HashOfAddr(endpoint)
	return hash ^ hash>>16
}

// endpointsByView returns the endpoints of each view that the port's frontends use, sorted, each once.
func (p *Port) endpointsByView() (endpoints [2][]netip.AddrPort) {
	var used [2]bool
	for i := range p.Frontends {
		if frontend := &p.Frontends[i]; frontend.Class.isBalanced() {
			inside, outside := frontend.views()
			used[inside], used[outside] = true, true
		}
	}
	candidates := [][]netip.AddrPort{clusterView: slices.Concat(p.Cluster, p.StickyOnly), localView: slices.Clone(p.Local)}
	for view, slots := range candidates {
		if used[view] {
			endpoints[view] = slots
			slices.SortFunc(endpoints[view], netip.AddrPort.Compare)
			endpoints[view] = slices.Compact(endpoints[view])
		}
	}
	return endpoints
}

// numberKey is the number of a port in a family.
type numberKey struct {
	family model.Family
	number uint32
}

// shardKey is a shard in a family.
type shardKey struct {
	family model.Family
	shard  uint32
}

// assignNumbers assigns a port with affinity its numbers.
func (b *planBuilder) assignNumbers(port, before *Port) {
	port.affinity = nil // the Service may have been planned before
	endpoints := port.endpointsByView()
	if port.Affinity == 0 || len(endpoints[clusterView])+len(endpoints[localView]) == 0 {
		return
	}
	var old affinityState
	if before != nil && before.affinity != nil {
		old = *before.affinity
	} else if restored := b.restored[port.ID.Family]; restored != nil {
		old = restored.affinityOf(port, func(number uint32) bool { return b.plan.numbers[numberKey{port.ID.Family, number}] == 0 })
	}
	port.affinity = b.affinityOf(port, endpoints, old)
	if port.affinity == nil {
		b.plan.WithoutAffinity = append(b.plan.WithoutAffinity, port.ID)
		return
	}
	b.addAffinityOwner(port, +1)
}

// LacksAffinity reports whether a port should have session affinity, but no numbers are left for it.
func (s Service) LacksAffinity() bool {
	return slices.ContainsFunc(s.Ports, func(port Port) bool {
		if port.Affinity == 0 || port.affinity != nil {
			return false
		}
		endpoints := port.endpointsByView()
		return len(endpoints[clusterView])+len(endpoints[localView]) > 0
	})
}

// affinityOf returns a port's new session affinity; nil if no numbers are left for it.
func (b *planBuilder) affinityOf(port *Port, endpoints [2][]netip.AddrPort, old affinityState) *affinityState {
	size, fits := old.sizeClassFor(endpoints)
	if size != old.sizeClass || !fits {
		old = affinityState{shard: b.leastUsedShard(port.ID.Family, size)}
	}
	state := &affinityState{timeout: b.timeoutFor(port.Affinity), sizeClass: size, shard: old.shard}
	for view := range state.views {
		if len(endpoints[view]) == 0 {
			continue
		}
		numbers := old.views[view]
		if numbers.port == 0 {
			if numbers.port = b.freeNumber(port, state, viewKind(view)); numbers.port == 0 {
				return nil
			}
		}
		numbers.endpoints = numbers.renumbered(state.sizeClass, endpoints[view])
		state.views[view] = numbers
	}
	return state
}

// sizeClassFor returns the smallest size class with room for all endpoints, including removed ones, but never one below
// the port's present class. It also reports whether there is room: the largest class may lack it while all endpoints
// are replaced.
func (a *affinityState) sizeClassFor(endpoints [2][]netip.AddrPort) (size *sizeClass, fits bool) {
	for _, size = range sizeClasses[max(0, slices.Index(sizeClasses, a.sizeClass)):] {
		fits = true
		for view := range a.views {
			old := &a.views[view]
			room := size.capacity() - len(old.endpoints)
			for _, endpoint := range endpoints[view] {
				if _, stays := old.find(endpoint); !stays {
					room--
				}
			}
			fits = fits && room >= 0
		}
		if fits {
			break
		}
	}
	return size, fits
}

// leastUsedShard returns the shard whose map the fewest ports share.
func (b *planBuilder) leastUsedShard(family model.Family, size *sizeClass) uint32 {
	leastUsed, owners := size.firstShard, -1
	for shard := size.firstShard; shard < size.firstShard+size.shards; shard++ {
		sharing := planned(b.plan.shards, b.mirror.shards, shardKey{family, shard})
		if owners < 0 || sharing < owners {
			leastUsed, owners = shard, sharing
		}
	}
	return leastUsed
}

// freeNumber returns a number that no other port has; zero if none is left. The port's name determines the start and
// the step of the search.
func (b *planBuilder) freeNumber(port *Port, state *affinityState, view viewKind) uint32 {
	hash := sha256.Sum256([]byte(port.objectName("") + []string{clusterView: "", localView: localSuffix}[view]))
	start, step := binary.BigEndian.Uint32(hash[:]), binary.BigEndian.Uint32(hash[4:])|1
	numbersInShard := uint32(1) << (24 - state.sizeClass.bits) / state.sizeClass.shards // powers of two: the search visits each number once
	for try := range numbersInShard {
		index := (start+try*step)%numbersInShard*state.sizeClass.shards + state.shard - state.sizeClass.firstShard
		number := state.sizeClass.prefix | index<<state.sizeClass.bits
		if number != state.views[1-view].port && !b.isTaken(numberKey{port.ID.Family, number}) {
			return number
		}
	}
	return 0
}

func (b *planBuilder) isTaken(key numberKey) bool {
	if b.plan.numbers[key] > 0 || b.mirror.numbers[key] > 0 {
		return true
	}
	restored := b.restored[key.family]
	return restored != nil && restored.used[key.number]
}

// timeoutFor returns the timeout that a port gets: the one that its Service sets, or the next longer one in use if too
// many different ones are in use already.
func (b *planBuilder) timeoutFor(want time.Duration) time.Duration {
	if slices.Contains(reservedTimeouts, want) {
		return want
	}
	used, nonReserved := map[time.Duration]bool{}, 0
	for _, timeouts := range []map[time.Duration]int{b.mirror.timeouts, b.plan.timeouts} {
		for timeout, owners := range timeouts {
			if owners > 0 && !used[timeout] && !slices.Contains(reservedTimeouts, timeout) {
				used[timeout] = true
				nonReserved++
			}
		}
	}
	if used[want] || nonReserved < maxTimeouts {
		return want
	}
	longer := slices.Max(reservedTimeouts)
	for _, timeout := range slices.AppendSeq(slices.Clone(reservedTimeouts), maps.Keys(used)) {
		if timeout >= want && timeout < longer {
			longer = timeout
		}
	}
	return longer
}

// addAffinityOwner records that a port gains or loses its numbers, its shard and its timeout.
func (b *planBuilder) addAffinityOwner(port *Port, delta int) {
	if port.affinity == nil {
		return
	}
	addTo(b.plan.timeouts, b.mirror.timeouts, port.affinity.timeout, delta)
	addTo(b.plan.shards, b.mirror.shards, shardKey{port.ID.Family, port.affinity.shard}, delta)
	for _, view := range port.affinity.views {
		if view.port != 0 {
			addTo(b.plan.numbers, b.mirror.numbers, numberKey{port.ID.Family, view.port}, delta)
		}
	}
}

// addTo changes a count of a plan, which starts with the mirror's.
func addTo[K comparable](counts, before map[K]int, key K, delta int) {
	counts[key] = planned(counts, before, key) + delta
}

// acceptCounts copies the counts of a plan to the mirror's.
func acceptCounts[K comparable](counts, planned map[K]int) {
	for key, count := range planned {
		if counts[key] = count; count == 0 {
			delete(counts, key)
		}
	}
}

// restoredNumbers is the numbers that an earlier proxy process left in a family's table.
type restoredNumbers struct {
	inside, outside map[Tuple]uint32 // ports by frontend
	used            map[uint32]bool
	endpoints       map[protocolNumber][]numberedEndpoint // by port, only those that collided
}

type protocolNumber struct {
	protocol model.Protocol
	number   uint32
}

func newRestoredNumbers(found Objects) *restoredNumbers {
	r := &restoredNumbers{used: map[uint32]bool{}, endpoints: map[protocolNumber][]numberedEndpoint{}}
	r.inside = r.portsIn(found, StickyPorts, NodePortStickyPorts)
	r.outside = r.portsIn(found, StickyOutside, NodePortStickyOutside)
	seen := map[protocolNumber]bool{} // a dump during a change may return a key twice
	for _, element := range found.Contents[NumberedCollided.Name] {
		size, number := sizeClassOf(element.Key.Number), protocolNumber{element.Key.Proto, element.Key.Number}
		if size == nil || number.number&endpointFlag == 0 || seen[number] {
			continue
		}
		seen[number] = true
		port := protocolNumber{number.protocol, size.portOf(number.number)}
		addr := netip.AddrPortFrom(element.Value.Addr, element.Value.Port)
		r.endpoints[port] = append(r.endpoints[port], numberedEndpoint{addr, number.number, true})
	}
	return r
}

// portsIn returns the numbers of ports by frontend. Keys of node ports and of other frontends never coincide.
func (r *restoredNumbers) portsIn(found Objects, sets ...Set) map[Tuple]uint32 {
	ports := map[Tuple]uint32{}
	for _, set := range sets {
		for _, element := range found.Contents[set.Name] {
			ports[element.Key] = element.Value.Number
			r.used[element.Value.Number] = true
		}
	}
	return ports
}

// affinityOf returns the numbers that an earlier proxy process left for a port, but no number that another port has,
// and no numbers that do not belong together.
func (r *restoredNumbers) affinityOf(port *Port, isFree func(number uint32) bool) (state affinityState) {
	for i := range port.Frontends {
		frontend := &port.Frontends[i]
		if !frontend.Class.isBalanced() {
			continue
		}
		key := frontendTuple(frontend.Frontend)
		inside, outside := frontend.views()
		r.restoreView(&state, inside, port.ID.Protocol, r.inside[key], isFree)
		if frontend.Class.isSplit() {
			r.restoreView(&state, outside, port.ID.Protocol, r.outside[key], isFree)
		}
	}
	return state
}

func (r *restoredNumbers) restoreView(state *affinityState, view viewKind, protocol model.Protocol, number uint32,
	isFree func(uint32) bool) {
	size := sizeClassOf(number)
	if state.views[view].port != 0 || state.views[1-view].port == number || size == nil || size.portOf(number) != number || !isFree(number) {
		return
	}
	shard := size.shardOf(number)
	if state.sizeClass == nil {
		state.sizeClass, state.shard = size, shard
	}
	if state.sizeClass == size && state.shard == shard {
		endpoints := r.endpoints[protocolNumber{protocol, number}]
		slices.SortFunc(endpoints, func(a, b numberedEndpoint) int { return a.addr.Compare(b.addr) })
		state.views[view] = numbering{number, endpoints}
	}
}
