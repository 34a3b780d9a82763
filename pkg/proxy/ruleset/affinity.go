package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Session affinity. A client is remembered by the number of its Service port, and with it the number of the endpoint
// that it got; a map of all such numbers says where the endpoint is. So few maps and chains serve any number of
// Services. When an endpoint leaves, one element is deleted, however many clients it has: a client that comes back is
// found to lead nowhere, forgotten, and given another endpoint.
//
// The maps are shards, so that a flood of one Service's clients, which fills its map, reaches few others. The class of
// a frontend whose clients are remembered names the chain: by shard, and by timeout, because the timeout stands in a
// rule.

const (
	affinityPrefix = "affinity-"
	stickyPrefix   = "sticky-"
	// maxTimeouts are the different timeouts that Services can have at a time, beside the reserved ones. Each has chains of
	// its own, and the kernel looks at all chains when a verdict comes.
	maxTimeouts = 6
)

// reservedTimeouts are always available: the API's default, and the longest that it allows. So a timeout for which
// there is no room can be rounded up to a longer one.
var reservedTimeouts = []time.Duration{3 * time.Hour, 24 * time.Hour}

// sizeClass says how numbers are made for ports with up to a certain number of endpoints:
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
	bits   int // of an endpoint
	// shards serve it, from the first on. All numbers of a port have the same one.
	firstShard, shards uint32
}

// noPort is the number of a port without endpoints.
const noPort = ClusterSlot

// endpointFlag is set in an endpoint's number, and clear in its port's.
const endpointFlag uint32 = 0x02000000

// tiers are from the smallest to the largest. A port that outgrows one gets numbers of the next, and its clients are
// forgotten.
var tiers = []*sizeClass{
	{prefix: 0xf0000000, bits: 8, shards: 16},                 // 65,536 ports
	{prefix: 0xf1000000, bits: 12, firstShard: 16, shards: 1}, // 4,096 ports
	{prefix: 0xf4000000, bits: 16, firstShard: 17, shards: 1}, // 256 ports
}

// room returns how many endpoints a port can have.
func (t *sizeClass) room() int { return 1 << t.bits }

// mask turns an endpoint's number into its port's number.
func (t *sizeClass) mask() uint32 { return ^(endpointFlag | uint32(t.room()-1)) }

// portOf returns the number of the port to which an endpoint's number belongs.
func (t *sizeClass) portOf(endpoint uint32) uint32 { return endpoint & t.mask() }

// endpointOf returns what an endpoint's number adds to its port's.
func (t *sizeClass) endpointOf(number uint32) uint32 { return number & uint32(t.room()-1) }

// firstChoice returns what an endpoint's number should add, if no other endpoint of the port has it.
func (t *sizeClass) firstChoice(endpoint netip.AddrPort) uint32 {
	return t.endpointOf(hashOf(endpoint))
}

// endpoints are the numbers that endpoints have, of whatever port.
func (t *sizeClass) endpoints() PriorityBetween {
	return PriorityBetween{First: t.prefix | endpointFlag, Last: t.prefix | endpointFlag | 0xffffff}
}

// shardOf returns the shard of a port's number.
func (t *sizeClass) shardOf(port uint32) uint32 { return t.firstShard + port>>t.bits%t.shards }

// sizeClassOf returns the tier of a number; nil if the number belongs to no tier.
func sizeClassOf(number uint32) *sizeClass {
	for _, tier := range tiers {
		if number&^endpointFlag>>24 == tier.prefix>>24 {
			return tier
		}
	}
	return nil
}

// affinityState is how the clients of a Service port are remembered. Its frontends share it, as far as the same endpoints
// serve them: there is a view of all nodes, and one of what a Local policy allows. Both have the tier and the shard.
type affinityState struct {
	timeout time.Duration
	tier    *sizeClass
	shard   uint32
	views   [2]numbering // by viewKind
}

// stickyClass returns the class of frontends whose clients are remembered: 17 bits of seconds, 5 of the shard, and
// whether they are node ports.
func (m *affinityState) stickyClass(nodePorts bool) Class {
	class := stickyClass | Class(m.timeout/time.Second)<<6 | Class(m.shard)<<1
	if nodePorts {
		class |= 1
	}
	return class
}

// affinityMap is where the clients are remembered: port and client : endpoint. All ports of a shard share it.
//
// The kernel bounds a set that packets fill to 65535 elements. To say that size would make it take 2 MiB for each map at
// once.
func (m *affinityState) affinityMap() Set { return Affinity(m.shard) }

// Affinity returns the map of a shard.
func Affinity(shard uint32) Set {
	return Set{
		Name: affinityPrefix + strconv.Itoa(int(shard)),
		Key:  []Type{TypeClass, TypeAddr}, Value: class, Dynamic: true,
	}
}

// chainName is the name of the chain that remembers the clients.
func (m *affinityState) chainName(nodePorts bool) string {
	name := fmt.Sprintf("%s%d-%d", stickyPrefix, m.timeout/time.Second, m.shard)
	if nodePorts {
		name = nodePortPrefix + name
	}
	return name
}

// chain sends a client to the endpoint that it is remembered with, or draws one and remembers it. It looks into no map
// that grows with Services, because adding a rule that looks into a map makes the kernel walk that map. Static chains,
// which are not added with a Service, look into those maps.
//
// The timeout stands in the rule and not in the map, because kernels differ in whether a map's timeout can be changed.
func (m *affinityState) chain(nodePorts bool) Chain {
	port, draw := stickyPortChain, stickyDrawChain
	if nodePorts {
		port, draw = nodePortPrefix+port, nodePortPrefix+draw
	}
	clients, isEndpoint := m.affinityMap(), m.tier.endpoints()
	remember := Rule{isEndpoint, UpdateAffinity{Map: clients, Mask: m.tier.mask(), Timeout: m.timeout}}
	return Chain{Name: m.chainName(nodePorts), Hook: NoHook, Rules: []Rule{
		jump(port),
		{SetPriority{Key: []Field{Priority, SourceAddr}, Map: clients}},
		remember,
		jump(numberedChain),
		{isEndpoint, DeleteAffinity{Map: clients, Mask: m.tier.mask()}},
		jump(draw),
		remember,
		jump(numberedChain),
	}}
}

// stickyPortRules find the number of the Service port. Where a Local policy governs clients from outside, it depends on
// the client.
func stickyPortRules(key []Field, outside Rule, ports, outsidePorts Set) []Rule {
	return []Rule{
		{SetPriority{Key: key, Map: ports}},
		append(slices.Clone(outside), SetPriority{Key: key, Map: outsidePorts}),
	}
}

// stickyDrawRules draw a slot, as for clients that are not remembered, and find the number of its endpoint.
func stickyDrawRules(key []Field, classes, endpoints Set) []Rule {
	return []Rule{
		{SetPriority{Key: key, Map: classes}, VerdictOf{Key: []Field{Priority}, Map: StickyDispatch}},
		{SetPriority{Key: append(slices.Clone(key), Priority), Map: endpoints}},
	}
}

// hasAffinity reports whether the clients of one of the port's frontends are remembered.
func (p *Port) hasAffinity(frontend *Frontend) bool {
	return p.affinity != nil && frontend.Class.isBalanced()
}

// affinityChains returns the chains that remember the port's clients.
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

// eachStickyClass yields what is done with a client of a frontend that is not remembered yet.
func (p *Port) eachStickyClass(frontend *Frontend, yield func(Element) bool) bool {
	return !p.hasAffinity(frontend) ||
		yield(Element{Key: frontendTuple(frontend.Frontend), Value: Tuple{Number: uint32(p.drawClass(frontend))}})
}

// eachStickyDispatch yields where those classes lead.
func (p *Port) eachStickyDispatch(yield func(Element) bool) bool {
	for i := range p.Frontends {
		if frontend := &p.Frontends[i]; p.hasAffinity(frontend) && !yield(p.drawElement(frontend)) {
			return false
		}
	}
	return true
}

// eachStickyPort yields the number of the port that a frontend leads to: for clients inside, and for those outside if it
// is the same.
func (p *Port) eachStickyPort(frontend *Frontend, yield func(Element) bool) bool {
	inside, _ := frontend.views()
	return !p.hasAffinity(frontend) || p.yieldPort(frontend, inside, yield)
}

// eachStickyOutside yields the number of the port for clients outside if they have endpoints of their own.
func (p *Port) eachStickyOutside(frontend *Frontend, yield func(Element) bool) bool {
	_, outside := frontend.views()
	return !p.hasAffinity(frontend) || !frontend.Class.isSplit() || p.yieldPort(frontend, outside, yield)
}

// yieldPort yields the number of a view. A view without endpoints remembers no client: its number is noPort, which no
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
	return p.affinity.views[inside].eachSlot(key, ClusterSlot, p.inside(frontend), yield) &&
		p.affinity.views[outside].eachSlot(key, LocalSlot, p.outside(frontend), yield)
}

// eachNumbered yields the endpoint that each number stands for, if it is the number that the endpoint's address gives.
func (p *Port) eachNumbered(yield func(Element) bool) bool { return p.yieldEndpoints(false, yield) }

// eachCollided yields the endpoint that each other number stands for.
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
