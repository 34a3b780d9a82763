package balance

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Plan is the split of all nodes' connections over a Service's endpoints. It is invalid once the NodeClasses of its
// demand changed. Computing it again, for another Service, reuses its memory.
type Plan struct {
	demand          Demand
	endpointClasses *EndpointClasses
	splits          [model.Ranks]rankPlan // by rank
	nodes           serviceClasses
	waiting         []int32 // entries that no rank has served so far
}

// NewPlan returns a computed plan.
func NewPlan(demand Demand, endpointClasses *EndpointClasses, limit int) *Plan {
	p := &Plan{}
	p.Compute(demand, endpointClasses, limit)
	return p
}

// Compute splits the demand over the endpoints, and replaces the previous plan. limit is in percent of the mean, from
// 100 to 1000; no endpoint expects more. Within the limit, Compute places as much as possible at the first key, then as
// much as possible at the second, and so on. Among these splits it chooses the one with the least load on the busiest
// endpoint. What a group cannot accept is taken from all its nodes in proportion.
//
// The keys of the endpoint classes must be those of the demand's node classes, or the first of them.
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
		// Nodes that no endpoint of this rank can serve are left to the next rank.
		p.waiting = s.takeServable(p.waiting)
		s.join()
		s.scale(uint64(limit))
		for k := range endpointClasses.keys {
			s.assign(k)
		}
		s.assignOverflow()
	}
}

// zeroed returns a slice of zeros, and reuses the memory of another slice if that is large enough.
func zeroed[T any](memory []T, size int) []T {
	memory = slices.Grow(memory[:0], size)[:size]
	clear(memory)
	return memory
}

// rankPlan is the plan for the endpoints of one rank and the nodes that they serve.
//
// All amounts are in units so small that rounding does not matter: a component's total is about 2^61 at the limit.
type rankPlan struct {
	rank            model.Rank
	endpointClasses *EndpointClasses
	groups          []group     // of all keys
	components      []component // the nodes and endpoints that keys link, directly or through others
	counts          []uint64    // of the rank's endpoints, by class
	loads           []uint64    // of one endpoint so far, by class
	raised          []uint64    // load of one endpoint from a key, by key and class

	// Used while the plan is computed:
	classes   *serviceClasses
	entries   []int32  // served by this rank
	remaining []uint64 // of each entry, not placed yet
	parent    []int32  // of each group, in the tree of its component
	number    []int32  // of the component with this group as its root, plus one
	order     []int32  // the endpoint classes by group, the least loaded first
}

// group has the nodes and endpoints with one value of one key.
type group struct {
	component int32
	endpoints uint64
	demand    uint64 // of its nodes
	demanded  uint64 // remaining demand of its nodes when its key was assigned
	room      uint64 // remaining capacity of its endpoints then
	assigned  uint64 // to its endpoints
	busiest   uint64 // load of the busiest of them, from all keys together
}

type component struct {
	endpoints uint64
	demand    uint64
	squares   uint64 // the sum of each node's demand times itself
	// uniform is set if no node has any demand, so each counts 1.
	uniform bool
	unit    uint64 // amount for a demand of 1
	full    uint64 // load of an endpoint at the limit
	mean    uint64 // average load of an endpoint
	epsilon uint64 // amounts up to this may be rounding errors
	busiest uint64 // load of the busiest endpoint
}

// epsilonBits sets the part of a component's demand that counts as zero: 1 of 2^epsilonBits, a million units and more.
// Rounding leaves less than a unit for each entry, endpoint and key. The smallest demand of a node is larger, in
// clusters of up to a billion nodes, and so is the amount that raises 65,535 endpoints by a unit.
const epsilonBits = 36

// count counts the endpoints of the rank, and reports whether there are any.
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

// groupsOf returns the groups of an endpoint class.
func (s *rankPlan) groupsOf(class int) []int32 {
	keys := len(s.endpointClasses.keys)
	return s.endpointClasses.groups[class*keys : (class+1)*keys]
}

// has reports whether a group has endpoints of the rank.
func (s *rankPlan) has(g int32) bool { return g != noGroup && s.groups[g].endpoints > 0 }

// takeServable adds those entries that have a group with endpoints, and returns the others in the same memory.
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

// join builds the components: each endpoint class and each entry links all of its groups.
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

// link joins those of the groups that have endpoints.
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

// componentOf returns the component of a class or entry with these groups, or nil if none has endpoints.
func (s *rankPlan) componentOf(groups []int32) *component {
	if number := s.componentNumber(groups); number != noGroup {
		return &s.components[number]
	}
	return nil
}

// componentNumber returns the number of that component, or noGroup if there is none.
func (s *rankPlan) componentNumber(groups []int32) int32 {
	if at := slices.IndexFunc(groups, s.has); at >= 0 {
		return s.groups[groups[at]].component
	}
	return noGroup
}

// scale sums up the demand of each component's nodes, and sets the capacity of its endpoints.
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

// scale chooses the smallest unit with which the total capacity of the endpoints does not overflow.
func (c *component) scale(limit uint64) {
	demand := max(c.demand, 1) // without nodes there is no demand, but endpoints have a capacity
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

// effectiveNodes returns the number of nodes of equal demand that would cancel out each other's rounding errors as well
// as the component's nodes do.
func (c *component) effectiveNodes() uint64 {
	high, low := bits.Mul64(c.demand, c.demand)
	effectiveNodes, _ := bits.Div64(high, low, max(c.squares, 1))
	return effectiveNodes
}

// assign places as much as possible at one key.
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

// waterFill gives a group's endpoints the demand of its nodes, up to their capacity: it raises the least loaded
// endpoints to one level. The classes must be in the order of their loads.
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

// assignOverflow adds the demand that no endpoint can accept within the bound. It occurs with hard keys that overlap,
// or with nodes and endpoints without a label. It goes to the last key that matches, beyond the bound.
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

// distribute adds an amount for each group to the loads of endpoint classes, in the proportions in which the group's
// nodes use these classes at its key.
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

// isConstrained reports whether a group's nodes had more demand left than its endpoints could accept.
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

// weigh writes the weight of one endpoint of each class for a group's nodes at its key, and returns the sum of the
// weights of all endpoints.
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

// weightOf returns the weight of one endpoint of a class, for connections that a group's nodes place at its key. It is
// proportional to the load that the key added, else to the remaining capacity, else equal for all. The class must have
// endpoints.
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
