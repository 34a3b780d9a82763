package balance

import (
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// One is all of a node's connections.
const One = 1 << 62

// epsilon counts as zero. So small a part is a rounding error, and would never become a slot.
const epsilon = One >> 30

// Share is one node's part of a plan. Ratios are per mille: 1200 is 1.2 times.
type Share struct {
	// Parts are the endpoints' fractions of One, in the given order of the endpoints. 0 means no connections. The sum is One,
	// except for less than a unit for each endpoint and key.
	Parts []uint64
	// Rank is the rank of these endpoints.
	Rank model.Rank
	// KeyResults are the results at each key, in their order.
	KeyResults []KeyResult
	// Outcome summarizes the results. Near is the index of the key that it is about. Next is the index of the key that
	// gets most of the other connections, or equal to Near if there are none.
	Outcome    Outcome
	Near, Next int

	// Source is the source of the demand.
	Source Source
	// Endpoints and Demand are those between which the load is balanced.
	Endpoints, Demand uint64
	// Busiest is the load of the busiest of these endpoints.
	Busiest uint64

	// offset is the node's offset among similar nodes, and effectiveNodes is the number of nodes that round: see Slots.
	offset         uint32
	effectiveNodes uint64
}

// KeyResult is the result at one key for a node.
type KeyResult struct {
	Key policy.Key
	// Value is the node's value of the key, and IsKnown is set if it has one.
	Value   string
	IsKnown bool
	// Part is the fraction of One that goes to the endpoints with this value.
	Part uint64
	// Endpoints is the number of endpoints with this value, and Demand the demand of all nodes with it.
	Endpoints, Demand uint64
	// Unbounded is the load of these endpoints if all of this demand stayed with them.
	Unbounded uint64
	// Busiest is the load of the busiest of these endpoints.
	Busiest uint64
}

// Outcome states how a node's preference for near endpoints was met.
type Outcome uint8

// The outcomes.
const (
	// NoEndpoint means that no usable endpoint shares a value with this node. It refuses connections.
	NoEndpoint Outcome = iota
	// WithinLoadBound means that all connections stay at the first key that has endpoints.
	WithinLoadBound
	// Spillover means that only some connections stay there.
	Spillover
	// NoNearEndpoints means that only the last key has endpoints. Near is the key before it.
	NoNearEndpoints
	// LoadBoundExceeded means that the endpoints that the keys allow exceed the bound. Near is the key where they do.
	LoadBoundExceeded
)

// Share returns a node's part of the plan. labels must have the node's values of all keys but the hostname. A node that
// is not in the plan uses the shares of nodes with the same values.
func (p *Plan) Share(name string, labels map[string]string) Share {
	share, s, allocations := p.outline(name, labels)
	share.Parts = make([]uint64, len(p.endpointClasses.of))
	if s != nil {
		share.distribute(s, allocations)
		share.offset = p.offset(name, share.Rank)
	}
	return share
}

// Outline returns a node's Share without its Fractions, and without the data for Slots. Its cost does not depend on the
// number of endpoints.
func (p *Plan) Outline(name string, labels map[string]string) Share {
	share, _, _ := p.outline(name, labels)
	return share
}

// outline returns a node's Share without its Fractions, and the plan and allocations that these are computed from, which
// are nil if the node refuses.
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

// distribute spreads One over the node's groups, key by key.
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

// Allocation is a part of a node's connections: those to the endpoints that one key matches.
type Allocation struct {
	Group
	Part uint64 // of One
}

// Group is the endpoints of one rank that a key matches.
type Group struct {
	Key   int // the index of the key
	rank  model.Rank
	group int32
}

// Allocations returns the allocations of a node's Share, or nil if the node refuses. Its cost does not depend on the
// number of endpoints.
func (p *Plan) Allocations(name string, labels map[string]string) []Allocation {
	groups := p.groupsOf(name, labels)
	for rank := range p.splits {
		if s := &p.splits[rank]; slices.ContainsFunc(groups, s.has) {
			return s.allocations(groups)
		}
	}
	return nil
}

// Weight returns the weight of an endpoint for an allocation to a group, relative to the group's other endpoints.
// Endpoints are numbered in the given order.
func (p *Plan) Weight(of Group, endpoint int) uint64 {
	s, class := &p.splits[of.rank], p.endpointClasses.of[endpoint]
	if class == noClass || s.counts[class] == 0 {
		return 0
	}
	return s.weightOf(of.Key, of.group, int(class))
}

// allocations returns the fraction of One that goes to each of a node's groups that have endpoints, key by key.
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

// groupsOf returns a node's groups, key by key; noGroup if it has no value, or no endpoint has it.
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

// NodeValue returns a node's value of a key, and whether it has one. An empty value is a value: in KEP-536 a key
// matches where both labels are present and equal.
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

// describe writes the result at a key, given the fraction that goes there.
func (h *Share) describe(k int, s *rankPlan, g int32, here uint64) {
	group, step := &s.groups[g], &h.KeyResults[k]
	c := &s.components[group.component]
	step.Part, step.Endpoints, step.Demand = here, group.endpoints, group.demand
	step.Unbounded = perMille(group.demand*c.endpoints, max(c.demand, 1)*group.endpoints)
	step.Busiest = perMille(group.busiest, c.mean)
}

// setOutcome summarizes how the node's preference was met.
func (h *Share) setOutcome(s *rankPlan, groups []int32) {
	first, last := slices.IndexFunc(groups, s.has), s.last(groups)
	c := &s.components[s.groups[groups[first]].component]
	h.Endpoints, h.Demand, h.effectiveNodes = c.endpoints, c.demand, c.effectiveNodes()
	h.Busiest = perMille(c.busiest, c.mean)
	h.Near, h.Next = first, first
	switch {
	case s.isConstrained(groups[last]) && s.groups[groups[last]].busiest > c.full:
		h.Outcome, h.Near, h.Next = LoadBoundExceeded, last, last
	case h.KeyResults[first].Part == One && first > 0 && first == len(h.KeyResults)-1:
		h.Outcome, h.Near = NoNearEndpoints, first-1
	case h.KeyResults[first].Part == One:
		h.Outcome = WithinLoadBound
	default:
		h.Outcome = Spillover
		h.Next = first + 1
		for k := first + 2; k <= last; k++ {
			if h.KeyResults[k].Part > h.KeyResults[h.Next].Part {
				h.Next = k
			}
		}
	}
}

// perMille rounds to nearest, with halves up.
func perMille(some, all uint64) uint64 {
	high, low := bits.Mul64(some, 1000)
	low, carry := bits.Add64(low, all/2, 0)
	quotient, _ := bits.Div64(high+carry, low, all)
	return quotient
}
