package balance

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Plan is how the connections of all nodes are split over a Service's endpoints. It is invalid once the Cells that it
// was made from have changed. A plan that is made again for the next Service needs no new memory.
type Plan struct {
	demand          Demand
	endpointClasses *EndpointClasses
	splits          [model.Ranks]rankPlan // by rank
	nodes           serviceClasses
	waiting         []int32 // entries that no rank has served so far
}

// NewPlan returns a plan that is made.
func NewPlan(demand Demand, endpointClasses *EndpointClasses, limit int) *Plan {
	p := &Plan{}
	p.Compute(demand, endpointClasses, limit)
	return p
}

// Compute splits the demand over the endpoints, whatever the plan was before. No endpoint expects more than the limit, in
// percent of the mean, from 100 to 1000. Within that it places as much as possible at the first key, then as much as
// possible at the second, and so on; among those ways it chooses the one with the least load on the busiest endpoint;
// and what a group cannot take is taken from all its nodes in proportion.
//
// The keys of the places must be those of the cells that the demand is of, or the first of them.
func (p *Plan) Compute(demand Demand, endpointClasses *EndpointClasses, limit int) {
	p.demand, p.endpointClasses = demand, endpointClasses
	p.nodes.build(demand, endpointClasses)
	p.waiting = p.waiting[:0]
	for e := range p.nodes.sums {
		if p.nodes.sums[e].nodes > 0 {
			p.waiting = append(p.waiting, int32(e))
		}
	}
	for rank := range p.splits {
		s := &p.splits[rank]
		s.rank, s.endpointClasses, s.classes = model.Rank(rank), endpointClasses, &p.nodes
		if !s.count(model.Rank(rank)) {
			continue
		}
		// Nodes that no endpoint of this rank can serve wait for the next rank.
		p.waiting = s.takeServable(p.waiting)
		s.join()
		s.scale(uint64(limit))
		for k := range endpointClasses.keys {
			s.assign(k)
		}
		s.assignOverflow()
	}
}

// zeroed returns a slice of zeros, in the memory of another one if it is large enough.
func zeroed[T any](memory []T, size int) []T {
	memory = slices.Grow(memory[:0], size)[:size]
	clear(memory)
	return memory
}

// rankPlan is the plan among the endpoints of one rank, and the nodes that they serve.
//
// All amounts are in units so small that rounding does not matter: a component's total is about 2^61 at the limit.
type rankPlan struct {
	rank            model.Rank
	endpointClasses *EndpointClasses
	groups          []group     // all keys'
	components      []component // the nodes and endpoints that keys link, directly or through others
	counts          []uint64    // the rank's endpoints, by place
	loads           []uint64    // what one endpoint got so far, by place
	raised          []uint64    // what one endpoint got at a key, by key and place

	// While it is made:
	classes   *serviceClasses
	entries   []int32  // those that it serves
	remaining []uint64 // what each of them has not placed yet
	parent    []int32  // of each group, in the tree of its component
	number    []int32  // of the component that has this group as its root, plus one
	order     []int32  // the places by group, the least loaded first
}

// group is the nodes and endpoints with one value of one key.
type group struct {
	component int32
	endpoints uint64
	demand    uint64 // of its nodes
	demanded  uint64 // what its nodes had left when its key's turn came
	room      uint64 // what its endpoints could take then
	assigned  uint64 // what they took
	busiest   uint64 // what the busiest of them gets from all keys together
}

type component struct {
	endpoints uint64
	demand    uint64
	squares   uint64 // the sum of each node's demand times itself
	// uniform: no node has any demand, so each counts 1.
	uniform bool
	unit    uint64 // what a node asks for each 1 of demand
	full    uint64 // what an endpoint may take
	mean    uint64 // what an endpoint gets on average
	epsilon uint64 // not more than rounding can leave
	busiest uint64 // what the busiest endpoint gets
}

// dust is the part of a component's demand that counts as nothing: 1 of 2^dustBits, a million units and more. Rounding
// leaves less than a unit for each entry, endpoint and key. The smallest demand of a node is larger, in clusters of up
// to a billion nodes, and so is the amount that raises 65,535 endpoints by a unit.
const epsilonBits = 36

// count counts the rank's endpoints, and reports whether there are any.
func (s *rankPlan) count(rank model.Rank) (any bool) {
	p := s.endpointClasses
	s.groups, s.counts = zeroed(s.groups, len(p.values)), zeroed(s.counts, len(p.count))
	for class, count := range p.count {
		if p.rank[class] != rank {
			continue
		}
		s.counts[class], any = count, true
		for _, g := range s.groupsOf(class) {
			if g != noGroup {
				s.groups[g].endpoints += count
			}
		}
	}
	return any
}

// groupsOf returns the groups of a place.
func (s *rankPlan) groupsOf(class int) []int32 {
	keys := len(s.endpointClasses.keys)
	return s.endpointClasses.groups[class*keys : (class+1)*keys]
}

// has reports whether a group has endpoints of the rank.
func (s *rankPlan) has(g int32) bool { return g != noGroup && s.groups[g].endpoints > 0 }

// takeServable takes those entries in that have a group with endpoints, and returns the others, in the same memory.
func (s *rankPlan) takeServable(waiting []int32) (others []int32) {
	s.entries, others = s.entries[:0], waiting[:0]
	for _, e := range waiting {
		if slices.ContainsFunc(s.classes.groupsOf(int(e)), s.has) {
			s.entries = append(s.entries, e)
		} else {
			others = append(others, e)
		}
	}
	return others
}

// join finds the components: each place and each entry joins all of its groups.
func (s *rankPlan) join() {
	s.parent, s.number = zeroed(s.parent, len(s.groups)), zeroed(s.number, len(s.groups))
	s.components = s.components[:0]
	for g := range s.parent {
		s.parent[g] = int32(g)
	}
	for class := range s.counts {
		if s.counts[class] > 0 {
			s.link(s.groupsOf(class))
		}
	}
	for _, e := range s.entries {
		s.link(s.classes.groupsOf(int(e)))
	}
	for g := range s.groups {
		root := s.root(int32(g))
		if s.number[root] == 0 && s.has(int32(g)) {
			s.components = append(s.components, component{})
			s.number[root] = int32(len(s.components))
		}
		s.groups[g].component = s.number[root] - 1
	}
}

// link joins those of some groups that have endpoints.
func (s *rankPlan) link(groups []int32) {
	first := int32(noGroup)
	for _, g := range groups {
		switch {
		case !s.has(g):
		case first == noGroup:
			first = s.root(g)
		default:
			s.parent[s.root(g)] = first
		}
	}
}

func (s *rankPlan) root(g int32) int32 {
	for s.parent[g] != g {
		s.parent[g] = s.parent[s.parent[g]]
		g = s.parent[g]
	}
	return g
}

// componentOf returns the component of a place or entry with some groups; nil if none has endpoints.
func (s *rankPlan) componentOf(groups []int32) *component {
	if number := s.componentNumber(groups); number != noGroup {
		return &s.components[number]
	}
	return nil
}

// componentNumber returns the number of that component; none if there is none.
func (s *rankPlan) componentNumber(groups []int32) int32 {
	if at := slices.IndexFunc(groups, s.has); at >= 0 {
		return s.groups[groups[at]].component
	}
	return noGroup
}

// scale finds out what each component's nodes ask and its endpoints may take.
func (s *rankPlan) scale(limit uint64) {
	for class, count := range s.counts {
		if c := s.componentOf(s.groupsOf(class)); c != nil {
			c.endpoints += count
		}
	}
	for _, e := range s.entries {
		c, sum := s.componentOf(s.classes.groupsOf(int(e))), &s.classes.sums[e]
		c.demand += sum.demand
		c.squares += sum.squares
	}
	for i := range s.components {
		s.components[i].uniform = s.components[i].demand == 0
	}
	for _, e := range s.entries {
		if c := s.componentOf(s.classes.groupsOf(int(e))); c.uniform {
			c.demand += s.classes.sums[e].nodes
			c.squares += s.classes.sums[e].nodes
		}
	}
	for i := range s.components {
		s.components[i].scale(limit)
	}
	keys := len(s.endpointClasses.keys)
	s.loads, s.raised = zeroed(s.loads, len(s.counts)), zeroed(s.raised, len(s.counts)*keys)
	s.remaining = zeroed(s.remaining, len(s.entries))
	for i, e := range s.entries {
		groups := s.classes.groupsOf(int(e))
		c := s.componentOf(groups)
		demand := c.demandOf(&s.classes.sums[e])
		s.remaining[i] = demand * c.unit
		for _, g := range groups {
			if s.has(g) {
				s.groups[g].demand += demand
			}
		}
	}
}

// scale chooses the unit: as small as a sum of all that the endpoints may take allows.
func (c *component) scale(limit uint64) {
	demand := max(c.demand, 1) // without nodes there is no demand, whatever the endpoints may take
	shift := max(0, 61-bits.Len64(c.endpoints*limit*demand))
	c.unit = 100 * c.endpoints << shift
	c.full = limit * demand << shift
	c.mean = 100 * demand << shift
	c.epsilon = c.mean * c.endpoints >> epsilonBits
}

// demandOf returns the demand of an entry.
func (c *component) demandOf(sum *sums) uint64 {
	if c.uniform {
		return sum.nodes
	}
	return sum.demand
}

// effectiveNodes is how many nodes of equal demand would cancel out each other's rounding errors as well as the component's
// nodes do.
func (c *component) effectiveNodes() uint64 {
	high, low := bits.Mul64(c.demand, c.demand)
	effectiveNodes, _ := bits.Div64(high, low, max(c.squares, 1))
	return effectiveNodes
}

// assign places as much as it can at one key.
func (s *rankPlan) assign(k int) {
	keys := len(s.endpointClasses.keys)
	for i, e := range s.entries {
		if g := s.classes.groups[int(e)*keys+k]; s.has(g) {
			s.groups[g].demanded += s.remaining[i]
		}
	}
	order := s.order[:0]
	for class, count := range s.counts {
		if g := s.endpointClasses.groups[class*keys+k]; count > 0 && g != noGroup {
			group := &s.groups[g]
			group.room += count * (s.components[group.component].full - s.loads[class])
			order = append(order, int32(class))
		}
	}
	s.order = order
	groupOf := func(class int32) int32 { return s.endpointClasses.groups[int(class)*keys+k] }
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(groupOf(a), groupOf(b)), cmp.Compare(s.loads[a], s.loads[b]))
	})
	for len(order) > 0 {
		g, size := groupOf(order[0]), 1
		for size < len(order) && groupOf(order[size]) == g {
			size++
		}
		s.waterFill(k, &s.groups[g], order[:size])
		order = order[size:]
	}
	for i, e := range s.entries {
		if g := s.classes.groups[int(e)*keys+k]; s.has(g) && s.groups[g].demanded > 0 {
			s.remaining[i] -= part(s.remaining[i], s.groups[g].assigned, s.groups[g].demanded)
		}
	}
}

// waterFill gives a group's endpoints what its nodes ask, as far as there is room: it raises the least loaded ones to one
// level. The places are in the order of their loads.
func (s *rankPlan) waterFill(k int, g *group, places []int32) {
	c := &s.components[g.component]
	if g.room <= c.epsilon {
		g.room = 0
	}
	if g.demanded <= c.epsilon {
		g.demanded = 0
	}
	rest := min(g.demanded, g.room)
	if rest == 0 {
		return
	}
	level, width := c.full, uint64(0)
	for i, class := range places {
		load, next := s.loads[class], c.full
		if i+1 < len(places) {
			next = s.loads[places[i+1]]
		}
		width += s.counts[class]
		if step := width * (next - load); step < rest {
			rest -= step
			continue
		}
		level = load + rest/width
		break
	}
	raised := s.raised[k*len(s.counts):]
	for _, class := range places {
		if s.loads[class] < level {
			raised[class] = level - s.loads[class]
			s.loads[class] = level
		}
	}
	g.assigned = min(g.demanded, g.room)
}

// assignOverflow adds what no endpoint can take within the bound: hard keys that cross, or nodes and endpoints without a label,
// can ask for more than there is room. It goes to the last key that matches, beyond the bound.
func (s *rankPlan) assignOverflow() {
	var over []uint64 // by group
	for i, e := range s.entries {
		groups := s.classes.groupsOf(int(e))
		if g := groups[s.last(groups)]; s.isConstrained(g) {
			if over == nil {
				over = make([]uint64, len(s.groups))
			}
			over[g] += s.remaining[i]
		}
	}
	if over != nil {
		s.distribute(over, s.loads)
	}
	for class, count := range s.counts {
		for _, g := range s.groupsOf(class) {
			if count > 0 && g != noGroup {
				group := &s.groups[g]
				group.busiest = max(group.busiest, s.loads[class])
				s.components[group.component].busiest = max(s.components[group.component].busiest, s.loads[class])
			}
		}
	}
}

// distribute adds an amount for each group to the loads of places, in the proportion in which a group's nodes spread what they
// place at its key.
func (s *rankPlan) distribute(amounts, loads []uint64) {
	weights := make([]uint64, len(s.counts))
	for k := range s.endpointClasses.keys {
		for g := s.endpointClasses.first[k]; g < s.endpointClasses.first[k+1]; g++ {
			if amounts[g] == 0 {
				continue
			}
			sum := s.weigh(k, g, weights)
			for class, weight := range weights {
				loads[class] += part(amounts[g], weight, sum)
			}
		}
	}
}

// isConstrained reports whether a group's nodes had more left than its endpoints could take.
func (s *rankPlan) isConstrained(g int32) bool {
	group := &s.groups[g]
	return group.demanded-group.assigned > s.components[group.component].epsilon
}

// last returns the last key whose group has endpoints.
func (s *rankPlan) last(groups []int32) int {
	k := len(groups) - 1
	for k > 0 && !s.has(groups[k]) {
		k--
	}
	return k
}

// weigh writes how much one endpoint of each place gets of what a group's nodes place at its key, and returns the sum
// over all endpoints.
func (s *rankPlan) weigh(k int, g int32, weights []uint64) (sum uint64) {
	for class, count := range s.counts {
		weights[class] = 0
		if count > 0 {
			weights[class] = s.weightOf(k, g, class)
			sum += count * weights[class]
		}
	}
	return sum
}

// weightOf returns how much one endpoint of a place with endpoints gets of what a group's nodes place at its key, in
// proportion: as they were raised; else as they had room; else all alike.
func (s *rankPlan) weightOf(k int, g int32, class int) uint64 {
	group := &s.groups[g]
	switch {
	case s.endpointClasses.groups[class*len(s.endpointClasses.keys)+k] != g:
		return 0
	case group.assigned > 0:
		return s.raised[k*len(s.counts)+class]
	case group.room > 0:
		weight := s.components[group.component].full
		for before := range k {
			weight -= s.raised[before*len(s.counts)+class]
		}
		return weight
	}
	return 1
}
