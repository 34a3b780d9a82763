package balance

import (
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// ONE is all of a node's connections.
const ONE = 1 << 62

// dustOfOne counts as nothing. A part that small is a rounding error; it would never become a slot.
const dustOfOne = ONE >> 30

// Share is one node's part of a plan. Ratios are per mille: 1200 is 1.2 times.
type Share struct {
	// Parts is what each endpoint gets of ONE, in the order in which the endpoints were given; 0: nothing. The sum is ONE,
	// except for less than a unit for each endpoint and key.
	Parts []uint64
	// Rank is which endpoints these are.
	Rank model.Rank
	// Steps says what happens at each key, in their order.
	Steps []Step
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

	// seat is the node's place among nodes like it, and crowd is how many nodes round: see Slots.
	seat  uint32
	crowd uint64
}

// Step is what one key means for a node.
type Step struct {
	Key policy.Key
	// Value is the node's, and Known whether it has one.
	Value string
	Known bool
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
	// Nobody: no usable endpoint shares a value with this node. It refuses.
	Nobody Outcome = iota
	// KeptNear: all connections stay at the first key that has endpoints.
	KeptNear
	// SpilledOverLoad: some stay there, and the rest goes on.
	SpilledOverLoad
	// NobodyNear: only the last key has endpoints. Near is the key before it.
	NobodyNear
	// OverLoad: the endpoints that the keys allow cannot keep the bound. Near is the key where they are over it.
	OverLoad
)

// Share returns a node's part of the plan. The labels are asked for the values of all keys but the hostname. A node
// that is not in the plan uses the shares of nodes with the same values.
func (p *Plan) Share(name string, labels map[string]string) Share {
	share, s, legs := p.outline(name, labels)
	share.Parts = make([]uint64, len(p.places.of))
	if s != nil {
		share.spread(s, legs)
		share.seat = p.seat(name, share.Rank)
	}
	return share
}

// Outline is a node's Share without its Parts, and without Slots. Its cost does not grow with the endpoints.
func (p *Plan) Outline(name string, labels map[string]string) Share {
	share, _, _ := p.outline(name, labels)
	return share
}

// outline returns a node's Share without its Parts, with what they are made of; nil if the node refuses.
func (p *Plan) outline(name string, labels map[string]string) (share Share, s *split, legs []Leg) {
	share = Share{Steps: make([]Step, len(p.places.keys)), Source: p.demand.Source()}
	for k, key := range p.places.keys {
		value, known := NodeValue(key, name, labels)
		share.Steps[k] = Step{Key: key, Value: value, Known: known}
	}
	groups := p.groupsOf(name, labels)
	for rank := range p.splits {
		if s = &p.splits[rank]; slices.ContainsFunc(groups, s.has) {
			share.Rank, legs = model.Rank(rank), s.legs(groups)
			for _, leg := range legs {
				share.describe(leg.Key, s, leg.group, leg.Part)
			}
			share.judge(s, groups)
			return share, s, legs
		}
	}
	return share, nil, nil
}

// spread spreads ONE over the node's groups, key by key.
func (h *Share) spread(s *split, legs []Leg) {
	byPlace, weights := make([]uint64, len(s.counts)), make([]uint64, len(s.counts))
	for _, leg := range legs {
		if leg.Part == 0 {
			continue
		}
		sum := s.weigh(leg.Key, leg.group, weights)
		for place, weight := range weights {
			byPlace[place] += part(leg.Part, weight, sum)
		}
	}
	for i, place := range s.places.of {
		if place != nowhere {
			h.Parts[i] = byPlace[place]
		}
	}
}

// Leg is a part of a node's connections: what goes to the endpoints that one key matches.
type Leg struct {
	Group
	Part uint64 // of ONE
}

// Group is the endpoints of one rank that a key matches.
type Group struct {
	Key   int // the index of the key
	rank  model.Rank
	group int32
}

// Legs is what a Share is made of; nil if the node refuses. Its cost does not grow with the endpoints.
func (p *Plan) Legs(name string, labels map[string]string) []Leg {
	groups := p.groupsOf(name, labels)
	for rank := range p.splits {
		if s := &p.splits[rank]; slices.ContainsFunc(groups, s.has) {
			return s.legs(groups)
		}
	}
	return nil
}

// Weight returns how much of a leg an endpoint gets, in proportion to others of its group. Endpoints are numbered in the order
// in which they were given.
func (p *Plan) Weight(of Group, endpoint int) uint64 {
	s, place := &p.splits[of.rank], p.places.of[endpoint]
	if place == nowhere || s.counts[place] == 0 {
		return 0
	}
	return s.weightOf(of.Key, of.group, int(place))
}

// legs returns the part of ONE that goes to each of a node's groups that have endpoints, key by key.
func (s *split) legs(groups []int32) []Leg {
	var legs []Leg
	rest, last := uint64(ONE), s.last(groups)
	for k, g := range groups {
		if !s.has(g) {
			continue
		}
		here, group := rest, &s.groups[g]
		switch {
		case k == last, group.asked == 0 && group.room > 0:
		case group.asked == 0:
			here = 0
		default:
			here = part(rest, group.placed, group.asked)
		}
		if rest-here < dustOfOne {
			here = rest
		}
		rest -= here
		legs = append(legs, Leg{Group{k, s.rank, g}, here})
	}
	return legs
}

// groupsOf returns a node's groups, key by key; none where it has no value, or no endpoint has it.
func (p *Plan) groupsOf(name string, labels map[string]string) []int32 {
	groups := make([]int32, len(p.places.keys))
	for k, key := range p.places.keys {
		groups[k] = none
		if value, known := NodeValue(key, name, labels); known {
			groups[k] = p.places.group(k, value)
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
func (h *Share) describe(k int, s *split, g int32, here uint64) {
	group, step := &s.groups[g], &h.Steps[k]
	c := &s.components[group.component]
	step.Part, step.Endpoints, step.Demand = here, group.endpoints, group.demand
	step.Unbounded = perMille(group.demand*c.endpoints, max(c.demand, 1)*group.endpoints)
	step.Busiest = perMille(group.busiest, c.mean)
}

// judge says in a word how the node's preference was met.
func (h *Share) judge(s *split, groups []int32) {
	first, last := slices.IndexFunc(groups, s.has), s.last(groups)
	c := &s.components[s.groups[groups[first]].component]
	h.Endpoints, h.Demand, h.crowd = c.endpoints, c.demand, c.crowd()
	h.Busiest = perMille(c.busiest, c.mean)
	h.Near, h.Next = first, first
	switch {
	case s.isShort(groups[last]) && s.groups[groups[last]].busiest > c.full:
		h.Outcome, h.Near, h.Next = OverLoad, last, last
	case h.Steps[first].Part == ONE && first > 0 && first == len(h.Steps)-1:
		h.Outcome, h.Near = NobodyNear, first-1
	case h.Steps[first].Part == ONE:
		h.Outcome = KeptNear
	default:
		h.Outcome = SpilledOverLoad
		h.Next = first + 1
		for k := first + 2; k <= last; k++ {
			if h.Steps[k].Part > h.Steps[h.Next].Part {
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
