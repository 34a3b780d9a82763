package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Session affinity. A client's endpoint is stored, as a number, under the number of the Service port and the client;
// one map has the endpoint of each number. So a few maps and chains serve any number of Services. When an endpoint is
// removed, one element is deleted, however many clients it has: the number stored for a returning client then leads to
// no endpoint, so the client's entry is deleted and it gets another endpoint.
//
// The maps are shards, so that a Service whose many clients fill its map affects few others. The class of a
// frontend with affinity selects the chain: by shard, and by timeout, because the timeout is part of a rule.

const (
	affinityPrefix = "affinity-"
	stickyPrefix   = "sticky-"
	// maxTimeouts limits the different timeouts that Services can have at a time, in addition to the reserved ones. Each
	// has chains of its own, and the kernel checks all chains when a verdict is added.
	maxTimeouts = 6
)

// reservedTimeouts are always available: the API's default, and the longest that it allows. So a timeout beyond
// maxTimeouts can be rounded up to a longer one.
var reservedTimeouts = []time.Duration{3 * time.Hour, 24 * time.Hour}

// sizeClass defines the numbers of ports with up to a certain number of endpoints:
//
//	31     24 23                      0
//	┌────────┬──────────────┬──────────┐
//	│ prefix │ port         │ 0        │   the number of a Service port
//	├────────┼──────────────┼──────────┤
//	│ prefix │              │          │
//	│ + 2    │ port         │ endpoint │   the number of one of its endpoints
//	└────────┴──────────────┴──────────┘
type sizeClass struct {
	prefix uint32
	bits   int // of a number, for the endpoint
	// The size class uses these shards, from firstShard on. All numbers of a port are in the same shard.
	firstShard, shards uint32
}

// noPort is the number of a port without endpoints.
const noPort = ClusterSlot

// endpointFlag is set in an endpoint's number, and clear in its port's.
const endpointFlag uint32 = 0x02000000

// sizeClasses are the size classes, smallest first. A port that outgrows its class gets numbers of the next one, and
// its clients lose their affinity.
var sizeClasses = []*sizeClass{
	{prefix: 0xf0000000, bits: 8, shards: 16},                 // 65,536 ports
	{prefix: 0xf1000000, bits: 12, firstShard: 16, shards: 1}, // 4,096 ports
	{prefix: 0xf4000000, bits: 16, firstShard: 17, shards: 1}, // 256 ports
}

// capacity returns how many endpoints a port can have.
func (s *sizeClass) capacity() int { return 1 << s.bits }

// mask returns the mask that turns an endpoint's number into its port's number.
func (s *sizeClass) mask() uint32 { return ^(endpointFlag | uint32(s.capacity()-1)) }

// portOf returns the number of the port to which an endpoint's number belongs.
func (s *sizeClass) portOf(endpoint uint32) uint32 { return endpoint & s.mask() }

// endpointOf returns the part of a number that identifies the endpoint within its port.
func (s *sizeClass) endpointOf(number uint32) uint32 { return number & uint32(s.capacity()-1) }

// firstChoice returns the number that an endpoint should have within its port, if no other endpoint of the port has it.
func (s *sizeClass) firstChoice(endpoint netip.AddrPort) uint32 {
	return s.endpointOf(hashOf(endpoint))
}

// endpoints returns the range of the numbers of endpoints, of all ports.
func (s *sizeClass) endpoints() PriorityBetween {
	return PriorityBetween{First: s.prefix | endpointFlag, Last: s.prefix | endpointFlag | 0xffffff}
}

// shardOf returns the shard of a port's number.
func (s *sizeClass) shardOf(port uint32) uint32 { return s.firstShard + port>>s.bits%s.shards }

// sizeClassOf returns the size class of a number; nil if the number belongs to none.
func sizeClassOf(number uint32) *sizeClass {
	for _, size := range sizeClasses {
		if number&^endpointFlag>>24 == size.prefix>>24 {
			return size
		}
	}
	return nil
}

// affinityState is the session affinity of a Service port. Frontends share it if the same endpoints serve them: one
// view has the endpoints of all nodes, and one those that a Local policy allows. Both have the same size class and
// shard.
type affinityState struct {
	timeout   time.Duration
	sizeClass *sizeClass
	shard     uint32
	views     [2]numbering // by viewKind
}

// stickyClass returns the class of frontends with affinity: 17 bits of seconds, 5 of the shard, and one that is set for
// node ports.
func (a *affinityState) stickyClass(nodePorts bool) Class {
	class := stickyClass | Class(a.timeout/time.Second)<<6 | Class(a.shard)<<1
	if nodePorts {
		class |= 1
	}
	return class
}

// affinityMap returns the map that stores the endpoints of clients: port and client : endpoint. All ports of a shard
// share it.
//
// The kernel limits a set that packets fill to 65535 elements. An explicit size would make it allocate 2 MiB for each
// map at once.
func (a *affinityState) affinityMap() Set { return Affinity(a.shard) }

// Affinity returns the map of a shard.
func Affinity(shard uint32) Set {
	return Set{
		Name: affinityPrefix + strconv.Itoa(int(shard)),
		Key:  []Type{TypeClass, TypeAddr}, Value: classTypes, Dynamic: true,
	}
}

// chainName returns the name of the chain for clients of frontends with affinity.
func (a *affinityState) chainName(nodePorts bool) string {
	name := fmt.Sprintf("%s%d-%d", stickyPrefix, a.timeout/time.Second, a.shard)
	if nodePorts {
		name = nodePortPrefix + name
	}
	return name
}

// chain returns the chain that sends a client to the endpoint stored for it, or picks one and stores it. The chain uses
// no map that grows with Services, because adding a rule that refers to a map makes the kernel walk that map. Static
// chains, which are not added with a Service, use those maps.
//
// The timeout is part of the rule, not of the map, because kernels differ in whether a map's timeout can be changed.
func (a *affinityState) chain(nodePorts bool) Chain {
	port, pick := stickyPortChain, stickyPickChain
	if nodePorts {
		port, pick = nodePortPrefix+port, nodePortPrefix+pick
	}
	clients, isEndpoint := a.affinityMap(), a.sizeClass.endpoints()
	update := Rule{isEndpoint, UpdateAffinity{Map: clients, Mask: a.sizeClass.mask(), Timeout: a.timeout}}
	return Chain{Name: a.chainName(nodePorts), Hook: NoHook, Rules: []Rule{
		jump(port),
		{SetPriority{Key: []Field{Priority, SourceAddr}, Map: clients}},
		update,
		jump(numberedChain),
		{isEndpoint, DeleteAffinity{Map: clients, Mask: a.sizeClass.mask()}},
		jump(pick),
		update,
		jump(numberedChain),
	}}
}

// stickyPortRules returns the rules that find the number of the Service port. If a Local policy governs clients from
// outside, it depends on the client.
func stickyPortRules(key []Field, outside Rule, ports, outsidePorts Set) []Rule {
	return []Rule{
		{SetPriority{Key: key, Map: ports}},
		append(slices.Clone(outside), SetPriority{Key: key, Map: outsidePorts}),
	}
}

// stickyPickRules returns the rules that pick a slot, as for clients without affinity, and find the number of its
// endpoint.
func stickyPickRules(key []Field, classes, endpoints Set) []Rule {
	return []Rule{
		{SetPriority{Key: key, Map: classes}, VerdictOf{Key: []Field{Priority}, Map: StickyDispatch}},
		{SetPriority{Key: append(slices.Clone(key), Priority), Map: endpoints}},
	}
}

// hasAffinity reports whether a frontend of the port has session affinity.
func (p *Port) hasAffinity(frontend *Frontend) bool {
	return p.affinity != nil && frontend.Class.isBalanced()
}

// affinityChains returns the chains that implement the port's session affinity.
func (p *Port) affinityChains() []Chain {
	if p.affinity == nil {
		return nil
	}
	var chains []Chain
	for _, nodePorts := range []bool{false, true} {
		if slices.ContainsFunc(p.Frontends, func(frontend Frontend) bool {
			return frontend.IsNodePort() == nodePorts && p.hasAffinity(&frontend)
		}) {
			chains = append(chains, p.affinity.chain(nodePorts))
		}
	}
	return chains
}

// eachStickyClass yields the class of a frontend for clients for which no endpoint is stored yet.
func (p *Port) eachStickyClass(frontend *Frontend, yield func(Element) bool) bool {
	return !p.hasAffinity(frontend) ||
		yield(Element{Key: frontendTuple(frontend.Frontend), Value: Tuple{Number: uint32(p.newClientClass(frontend))}})
}

// eachStickyDispatch yields the elements that map those classes to their chains.
func (p *Port) eachStickyDispatch(yield func(Element) bool) bool {
	for i := range p.Frontends {
		if frontend := &p.Frontends[i]; p.hasAffinity(frontend) && !yield(p.newClientElement(frontend)) {
			return false
		}
	}
	return true
}

// eachStickyPort yields the number of the port that a frontend leads to: for clients inside the cluster, and for those
// outside if it is the same.
func (p *Port) eachStickyPort(frontend *Frontend, yield func(Element) bool) bool {
	inside, _ := frontend.views()
	return !p.hasAffinity(frontend) || p.yieldPort(frontend, inside, yield)
}

// eachStickyOutside yields the number of the port for clients outside the cluster if they have endpoints of their own.
func (p *Port) eachStickyOutside(frontend *Frontend, yield func(Element) bool) bool {
	_, outside := frontend.views()
	return !p.hasAffinity(frontend) || !frontend.Class.isSplit() || p.yieldPort(frontend, outside, yield)
}

// yieldPort yields the number of a view. A view without endpoints stores no client: its number is noPort, which no
// client has.
func (p *Port) yieldPort(frontend *Frontend, view viewKind, yield func(Element) bool) bool {
	number := cmp.Or(p.affinity.views[view].port, noPort)
	return yield(Element{Key: frontendTuple(frontend.Frontend), Value: Tuple{Number: number}})
}

// eachStickySlot yields the number of the endpoint in each slot of a frontend.
func (p *Port) eachStickySlot(frontend *Frontend, yield func(Element) bool) bool {
	if !p.hasAffinity(frontend) || p.needsDedicatedMap() {
		return true
	}
	key := frontendTuple(frontend.Frontend)
	inside, outside := frontend.views()
	return p.affinity.views[inside].eachSlot(key, ClusterSlot, p.insideEndpoints(frontend), yield) &&
		p.affinity.views[outside].eachSlot(key, LocalSlot, p.outsideEndpoints(frontend), yield)
}

// eachNumbered yields the endpoint of each number that follows from the endpoint's address.
func (p *Port) eachNumbered(yield func(Element) bool) bool { return p.yieldEndpoints(false, yield) }

// eachCollided yields the endpoint of each other number.
func (p *Port) eachCollided(yield func(Element) bool) bool { return p.yieldEndpoints(true, yield) }

func (p *Port) yieldEndpoints(collided bool, yield func(Element) bool) bool {
	for view := range p.affinity.views {
		for _, endpoint := range p.affinity.views[view].endpoints {
			if endpoint.collided != collided {
				continue
			}
			element := Element{
				Key:   Tuple{Proto: p.ID.Protocol, Number: endpoint.number},
				Value: Tuple{Addr: endpoint.addr.Addr(), Port: endpoint.addr.Port()},
			}
			if !yield(element) {
				return false
			}
		}
	}
	return true
}
