package balance

import (
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// One is all of a node's connections.
const One = 1 << 62

// epsilon bounds the fractions of One that count as zero. They are rounding errors, and would never become a slot.
const epsilon = One >> 30

// Share is one node's part of a plan. Ratios are per mille: 1200 is 1.2 times.
type Share struct {
	// Fractions are the endpoints' fractions of One, in the given order of the endpoints. 0 means no connections. Their
	// sum is less than One by at most a unit for each endpoint and key.
	Fractions []uint64
	// Rank is the rank of these endpoints.
	Rank model.Rank
	// KeyResults are the results at each key, in their order.
	KeyResults []KeyResult
	// Outcome summarizes the results. Near is the index of the key that it refers to. Next is the index of the key that
	// gets most of the other connections, or equal to Near if there are none.
	Outcome    Outcome
	Near, Next int

	// Source is the source of the demand.
	Source Source
	// Endpoints is the number of endpoints between which the load is balanced, and Demand the total demand on them.
	Endpoints, Demand uint64
	// Busiest is the load of the busiest of these endpoints.
	Busiest uint64

	// offset is the node's offset among similar nodes, and effectiveNodes is the effective number of nodes whose rounding
	// errors cancel out: see Slots.
	offset         uint32
	effectiveNodes uint64
}

// KeyResult is the result at one key for a node.
type KeyResult struct {
	Key policy.Key
	// Value is the node's value of the key, and IsKnown is set if it has one.
	Value   string
	IsKnown bool
	// Fraction is the fraction of One that goes to the endpoints with this value.
	Fraction uint64
	// Endpoints is the number of endpoints with this value, and Demand the demand of all nodes with it.
	Endpoints, Demand uint64
	// Unbounded is the mean load of these endpoints if all of Demand stayed with them.
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
	// LoadBoundExceeded means that endpoints that the keys allow exceed the bound. Near is the key that matches them.
	LoadBoundExceeded
)

// Share returns a node's part of the plan. labels must have the node's values of all keys but the hostname. A node that
// is not in the plan uses the shares of nodes with the same values.
func (p *Plan) Share(name string, labels map[string]string) Share {
	share, r, allocations := p.outline(name, labels)
	share.Fractions = make([]uint64, len(p.endpointClasses.classOf))
	if r != nil {
		share.distribute(r, allocations)
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

// outline returns a node's Share without its Fractions, and the plan and allocations that these are computed from,
// which are nil if the node refuses.
func (p *Plan) outline(name string, labels map[string]string) (share Share, r *rankPlan, allocations []Allocation) {
	share = Share{KeyResults: make([]KeyResult, len(p.endpointClasses.keys)), Source: p.demand.Source()}
	for k, key := range p.endpointClasses.keys {
		value, known := NodeValue(key, name, labels)
		share.KeyResults[k] = KeyResult{Key: key, Value: value, IsKnown: known}
	}
	groups := p.groupsOf(name, labels)
	for rank := range p.byRank {
		if r = &p.byRank[rank]; slices.ContainsFunc(groups, r.hasEndpoints) {
			share.Rank, allocations = model.Rank(rank), r.allocations(groups)
			for _, allocation := range allocations {
				share.setKeyResult(allocation.Key, r, allocation.group, allocation.Fraction)
			}
			share.setOutcome(r, groups)
			return share, r, allocations
		}
	}
	return share, nil, nil
}

// distribute spreads One over the node's groups, key by key.
func (share *Share) distribute(r *rankPlan, allocations []Allocation) {
	byClass, weights := make([]uint64, len(r.counts)), make([]uint64, len(r.counts))
	for _, allocation := range allocations {
		if allocation.Fraction == 0 {
			continue
		}
		sum := r.weigh(allocation.Key, allocation.group, weights)
		for class, weight := range weights {
			byClass[class] += mulDiv(allocation.Fraction, weight, sum)
		}
	}
	for i, class := range r.endpointClasses.classOf {
		if class != noClass {
			share.Fractions[i] = byClass[class]
		}
	}
}

// Allocation is a part of a node's connections: those to the endpoints that one key matches.
type Allocation struct {
	Group
	Fraction uint64 // of One
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
	for rank := range p.byRank {
		if r := &p.byRank[rank]; slices.ContainsFunc(groups, r.hasEndpoints) {
			return r.allocations(groups)
		}
	}
	return nil
}

// Weight returns the weight of an endpoint for an allocation to a group, relative to the group's other endpoints.
// Endpoints are numbered in the given order.
func (p *Plan) Weight(g Group, endpoint int) uint64 {
	r, class := &p.byRank[g.rank], p.endpointClasses.classOf[endpoint]
	if class == noClass || r.counts[class] == 0 {
		return 0
	}
	return r.weightOf(g.Key, g.group, int(class))
}

// allocations returns the fraction of One that goes to each of a node's groups that have endpoints, key by key.
func (r *rankPlan) allocations(groups []int32) []Allocation {
	var allocations []Allocation
	remaining, last := uint64(One), r.lastKey(groups)
	for k, g := range groups {
		if !r.hasEndpoints(g) {
			continue
		}
		fraction, group := remaining, &r.groups[g]
		switch {
		case k == last, group.remaining == 0 && group.capacity > 0:
		case group.remaining == 0:
			fraction = 0
		default:
			fraction = mulDiv(remaining, group.assigned, group.remaining)
		}
		if remaining-fraction < epsilon {
			fraction = remaining
		}
		remaining -= fraction
		allocations = append(allocations, Allocation{Group{k, r.rank, g}, fraction})
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

// setKeyResult sets the result at a key, given the fraction that goes there.
func (share *Share) setKeyResult(k int, r *rankPlan, g int32, fraction uint64) {
	group, result := &r.groups[g], &share.KeyResults[k]
	c := &r.components[group.component]
	result.Fraction, result.Endpoints, result.Demand = fraction, group.endpoints, group.demand
	result.Unbounded = perMille(group.demand*c.endpoints, max(c.demand, 1)*group.endpoints)
	if r.kinds > 1 {
		result.Unbounded = max(result.Unbounded, perMille(group.open*c.endpoints, max(c.open, 1)*group.endpoints))
	}
	result.Busiest = perMille(group.busiest, c.mean)
}

// setOutcome summarizes how the node's preference was met.
func (share *Share) setOutcome(r *rankPlan, groups []int32) {
	first, last := slices.IndexFunc(groups, r.hasEndpoints), r.lastKey(groups)
	c := &r.components[r.groups[groups[first]].component]
	share.Endpoints, share.Demand, share.effectiveNodes = c.endpoints, c.demand, c.effectiveNodes()
	if r.maxEffectiveNodes > 0 {
		share.effectiveNodes = min(share.effectiveNodes, r.maxEffectiveNodes)
	}
	share.Busiest = perMille(c.busiest, c.mean)
	share.Near, share.Next = first, first
	switch {
	case r.isConstrained(groups[last]) && r.groups[groups[last]].busiest > c.maxLoad:
		share.Outcome, share.Near, share.Next = LoadBoundExceeded, last, last
	case share.KeyResults[first].Fraction == One && first > 0 && first == len(share.KeyResults)-1:
		share.Outcome, share.Near = NoNearEndpoints, first-1
	case share.KeyResults[first].Fraction == One:
		share.Outcome = WithinLoadBound
	default:
		share.Outcome = Spillover
		share.Next = first + 1
		for k := first + 2; k <= last; k++ {
			if share.KeyResults[k].Fraction > share.KeyResults[share.Next].Fraction {
				share.Next = k
			}
		}
	}
}

// perMille returns numerator / denominator in per mille, rounded to the nearest number, and up from one half.
func perMille(numerator, denominator uint64) uint64 {
	high, low := bits.Mul64(numerator, 1000)
	low, carry := bits.Add64(low, denominator/2, 0)
	quotient, _ := bits.Div64(high+carry, low, denominator)
	return quotient
}
