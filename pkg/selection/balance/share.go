package balance

import (
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// One is all of a node's connections.
const One = 1 << 62

// epsilon counts as nothing. A part that small is a rounding error; it would never become a slot.
const epsilon = One >> 30

// Share is one node's part of a plan. Ratios are per mille: 1200 is 1.2 times.
type Share struct {
	// Parts is what each endpoint gets of ONE, in the order in which the endpoints were given; 0: nothing. The sum is ONE,
	// except for less than a unit for each endpoint and key.
	Parts []uint64
	// Rank is which endpoints these are.
	Rank model.Rank
	// KeyResults says what happens at each key, in their order.
	KeyResults []KeyResult
	// Outcome sums it up in a word. Near is the step that it is about, and Next is the step that gets most of the rest:
	// the same one if there is no rest.
	Outcome    Outcome
	Near, Next int

	// Source is where the demand is from.
	Source Source
	// Endpoints and Demand are those between which the load is balanced.
	Endpoints, Demand uint64
	// Busiest is what the busiest of them expects, relative to the mean.
	Busiest uint64

	// offset is the node's place among nodes like it, and crowd is how many nodes round: see Slots.
	offset         uint32
	effectiveNodes uint64
}

// KeyResult is what one key means for a node.
type KeyResult struct {
	Key policy.Key
	// Value is the node's, and Known whether it has one.
	Value   string
	IsKnown bool
	// Part is what goes to the endpoints with this value, of ONE.
	Part uint64
	// Endpoints is how many have this value, and Demand what all nodes with it ask.
	Endpoints, Demand uint64
	// Unbounded is what these endpoints would expect, relative to the mean, if all of this demand stayed with them.
	Unbounded uint64
	// Busiest is what the busiest of them expects.
	Busiest uint64
}

// Outcome is how a node's preference for near endpoints was met.
type Outcome uint8

// The outcomes.
const (
	// NoEndpoint: no usable endpoint shares a value with this node. It refuses.
	NoEndpoint Outcome = iota
	// WithinLoadBound: all connections stay at the first key that has endpoints.
	WithinLoadBound
	// SpilledOverLoad: some stay there, and the rest goes on.
	SpilledOverLoad
	// NoNearEndpoints: only the last key has endpoints. Near is the key before it.
	NoNearEndpoints
	// OverLoad: the endpoints that the keys allow cannot keep the bound. Near is the key where they are over it.
	OverLoad
)

// Share returns a node's part of the plan. The labels are asked for the values of all keys but the hostname. A node
// that is not in the plan uses the shares of nodes with the same values.
func (p *Plan) Share(name string, labels map[string]string) Share {
	share, s, allocations := p.outline(name, labels)
	share.Parts = make([]uint64, len(p.endpointClasses.of))
	if s != nil {
		share.distribute(s, allocations)
		share.offset = p.offset(name, share.Rank)
	}
	return share
}

// Outline is a node's Share without its Parts, and without Slots. Its cost does not grow with the endpoints.
func (p *Plan) Outline(name string, labels map[string]string) Share {
	share, _, _ := p.outline(name, labels)
	return share
}

// outline returns a node's Share without its Parts, with what they are made of; nil if the node refuses.
func (p *Plan) outline(name string, labels map[string]string) (share Share, s *rankPlan, allocations []Allocation) {
	share = Share{KeyResults: make([]KeyResult, len(p.endpointClasses.keys)), Source: p.demand.Source()}
	for k, key := range p.endpointClasses.keys {
		value, known := NodeValue(key, name, labels)
		share.KeyResults[k] = KeyResult{Key: key, Value: value, IsKnown: known}
	}
	groups := p.groupsOf(name, labels)
	for rank := range p.splits {
		if s = &p.splits[rank]; slices.ContainsFunc(groups, s.has) {
			share.Rank, allocations = model.Rank(rank), s.allocations(groups)
			for _, allocation := range allocations {
				share.describe(allocation.Key, s, allocation.group, allocation.Part)
			}
			share.setOutcome(s, groups)
			return share, s, allocations
		}
	}
	return share, nil, nil
}

// distribute spreads ONE over the node's groups, key by key.
func (h *Share) distribute(s *rankPlan, allocations []Allocation) {
	byPlace, weights := make([]uint64, len(s.counts)), make([]uint64, len(s.counts))
	for _, allocation := range allocations {
		if allocation.Part == 0 {
			continue
		}
		sum := s.weigh(allocation.Key, allocation.group, weights)
		for class, weight := range weights {
			byPlace[class] += part(allocation.Part, weight, sum)
		}
	}
	for i, class := range s.endpointClasses.of {
		if class != noClass {
			h.Parts[i] = byPlace[class]
		}
	}
}

// Allocation is a part of a node's connections: what goes to the endpoints that one key matches.
type Allocation struct {
	Group
	Part uint64 // of ONE
}

// Group is the endpoints of one rank that a key matches.
type Group struct {
	Key   int // the index of the key
	rank  model.Rank
	group int32
}

// Allocations is what a Share is made of; nil if the node refuses. Its cost does not grow with the endpoints.
func (p *Plan) Allocations(name string, labels map[string]string) []Allocation {
	groups := p.groupsOf(name, labels)
	for rank := range p.splits {
		if s := &p.splits[rank]; slices.ContainsFunc(groups, s.has) {
			return s.allocations(groups)
		}
	}
	return nil
}

// Weight returns how much of a leg an endpoint gets, in proportion to others of its group. Endpoints are numbered in the order
// in which they were given.
func (p *Plan) Weight(of Group, endpoint int) uint64 {
	s, class := &p.splits[of.rank], p.endpointClasses.of[endpoint]
	if class == noClass || s.counts[class] == 0 {
		return 0
	}
	return s.weightOf(of.Key, of.group, int(class))
}

// allocations returns the part of ONE that goes to each of a node's groups that have endpoints, key by key.
func (s *rankPlan) allocations(groups []int32) []Allocation {
	var allocations []Allocation
	rest, last := uint64(One), s.last(groups)
	for k, g := range groups {
		if !s.has(g) {
			continue
		}
		here, group := rest, &s.groups[g]
		switch {
		case k == last, group.demanded == 0 && group.room > 0:
		case group.demanded == 0:
			here = 0
		default:
			here = part(rest, group.assigned, group.demanded)
		}
		if rest-here < epsilon {
			here = rest
		}
		rest -= here
		allocations = append(allocations, Allocation{Group{k, s.rank, g}, here})
	}
	return allocations
}

// groupsOf returns a node's groups, key by key; none where it has no value, or no endpoint has it.
func (p *Plan) groupsOf(name string, labels map[string]string) []int32 {
	groups := make([]int32, len(p.endpointClasses.keys))
	for k, key := range p.endpointClasses.keys {
		groups[k] = noGroup
		if value, known := NodeValue(key, name, labels); known {
			groups[k] = p.endpointClasses.group(k, value)
		}
	}
	return groups
}

// NodeValue returns a node's value of a key, and whether it has one. An empty value is a value: in KEP-536 a key matches
// where both labels are present and equal.
func NodeValue(key policy.Key, name string, labels map[string]string) (value string, known bool) {
	switch key {
	case policy.AnyNode:
		return "", true
	case policy.Hostname:
		return name, name != ""
	}
	value, known = labels[string(key)]
	return value, known
}

// describe writes what a key means for the node, given what goes there.
func (h *Share) describe(k int, s *rankPlan, g int32, here uint64) {
	group, step := &s.groups[g], &h.KeyResults[k]
	c := &s.components[group.component]
	step.Part, step.Endpoints, step.Demand = here, group.endpoints, group.demand
	step.Unbounded = perMille(group.demand*c.endpoints, max(c.demand, 1)*group.endpoints)
	step.Busiest = perMille(group.busiest, c.mean)
}

// setOutcome says in a word how the node's preference was met.
func (h *Share) setOutcome(s *rankPlan, groups []int32) {
	first, last := slices.IndexFunc(groups, s.has), s.last(groups)
	c := &s.components[s.groups[groups[first]].component]
	h.Endpoints, h.Demand, h.effectiveNodes = c.endpoints, c.demand, c.effectiveNodes()
	h.Busiest = perMille(c.busiest, c.mean)
	h.Near, h.Next = first, first
	switch {
	case s.isConstrained(groups[last]) && s.groups[groups[last]].busiest > c.full:
		h.Outcome, h.Near, h.Next = OverLoad, last, last
	case h.KeyResults[first].Part == One && first > 0 && first == len(h.KeyResults)-1:
		h.Outcome, h.Near = NoNearEndpoints, first-1
	case h.KeyResults[first].Part == One:
		h.Outcome = WithinLoadBound
	default:
		h.Outcome = SpilledOverLoad
		h.Next = first + 1
		for k := first + 2; k <= last; k++ {
			if h.KeyResults[k].Part > h.KeyResults[h.Next].Part {
				h.Next = k
			}
		}
	}
}

// perMille rounds to the nearest; a half rounds up.
func perMille(some, all uint64) uint64 {
	high, low := bits.Mul64(some, 1000)
	low, carry := bits.Add64(low, all/2, 0)
	quotient, _ := bits.Div64(high+carry, low, all)
	return quotient
}
