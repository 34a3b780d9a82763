package balance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Plan is the split of all nodes' connections over a Service's endpoints. It is invalid once the NodeClasses of its
// demand change. Computing it again, for another Service, reuses its memory.
type Plan struct {
	demand          Demand
	endpointClasses *EndpointClasses
	byRank          [model.NumRanks]rankPlan
	classes         serviceClasses
	unserved        []int32 // entries that no rank has served so far
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
// If the demand has two kinds, the limit holds for each: a node's split is the same for both, and the load of an endpoint
// is that of the kind that loads it more. If the rest then fits no endpoint, less is placed at all keys but the last one.
//
// The keys of the endpoint classes must be those of the demand's node classes, or the first of them.
func (p *Plan) Compute(demand Demand, endpointClasses *EndpointClasses, limit int) {
	p.demand, p.endpointClasses = demand, endpointClasses
	p.classes.build(demand, endpointClasses)
	p.unserved = p.unserved[:0]
	for e := range p.classes.totals {
		if p.classes.totals[e].nodes > 0 {
			p.unserved = append(p.unserved, int32(e))
		}
	}
	for rank := range p.byRank {
		r := &p.byRank[rank]
		r.rank, r.endpointClasses, r.classes = model.Rank(rank), endpointClasses, &p.classes
		r.kinds, r.maxEffectiveNodes = demand.kinds(), demand.maxEffectiveNodes
		if !r.countEndpoints(model.Rank(rank)) {
			continue
		}
		// Nodes that no endpoint of this rank can serve are left to the next rank.
		p.unserved = r.takeServable(p.unserved)
		r.buildComponents()
		r.scale(uint64(limit))
		r.assignAll(One)
		if r.kinds > 1 && r.hasOverflow() {
			r.assignLess()
		}
		r.assignOverflow()
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
	components      []component // the nodes and endpoints that common groups link, directly or indirectly
	counts          []uint64    // of the rank's endpoints, by class
	kinds           kind        // the number of kinds of demand

	loads             [numKinds][]uint64 // of one endpoint so far, by class
	addedLoads        [numKinds][]uint64 // load of one endpoint from a key, by key and class
	maxEffectiveNodes uint64             // of the demand

	// Used while the plan is computed:
	classes         *serviceClasses
	entries         []int32            // served by this rank
	remaining       [numKinds][]uint64 // of each entry, not placed yet
	parent          []int32            // of each group, in the tree of its component
	componentOfRoot []int32            // of each group that is a root: the number of its component, plus one
	byGroup         [][numKinds]uint64 // the sums of remaining by group of one key
	order           []int32            // the endpoint classes by group
}

// group has the nodes and endpoints with one value of one key.
type group struct {
	component    int32
	endpoints    uint64
	demand, open uint64 // of its nodes, by kind
	assignment
	busiest uint64 // load of the busiest of its endpoints, from all keys together
}

// assignment is what a group's key assigned. Its amounts are of one kind: that of which more remained.
type assignment struct {
	kind      kind
	remaining uint64 // remaining demand of the group's nodes
	capacity  uint64 // remaining capacity of its endpoints
	assigned  uint64 // to its endpoints
}

type component struct {
	endpoints    uint64
	demand, open uint64 // by kind
	squares      uint64 // the sum of each node's demand times itself
	// uniform is set if no node has any demand, so each counts 1.
	uniform bool
	unit    uint64 // amount for a demand of 1
	maxLoad uint64 // load of an endpoint at the limit
	mean    uint64 // average load of an endpoint
	epsilon uint64 // amounts up to this may be rounding errors
	busiest uint64 // load of the busiest endpoint
}

// epsilonBits sets the amount that counts as zero: 1/2^epsilonBits of a component's demand, at least a million units.
// Rounding errors are smaller: less than a unit for each entry, endpoint and key. A node's demand is larger, in
// clusters of up to a billion nodes, and so is the amount that raises 65,535 endpoints by a unit.
const epsilonBits = 36

// countEndpoints counts the endpoints of the rank, and reports whether there are any.
func (r *rankPlan) countEndpoints(rank model.Rank) (found bool) {
	classes := r.endpointClasses
	r.groups, r.counts = zeroed(r.groups, len(classes.values)), zeroed(r.counts, len(classes.counts))
	for class, count := range classes.counts {
		if classes.ranks[class] != rank {
			continue
		}
		r.counts[class], found = count, true
		for _, g := range r.groupsOf(class) {
			if g != noGroup {
				r.groups[g].endpoints += count
			}
		}
	}
	return found
}

// groupsOf returns the groups of an endpoint class.
func (r *rankPlan) groupsOf(class int) []int32 {
	keys := len(r.endpointClasses.keys)
	return r.endpointClasses.groups[class*keys : (class+1)*keys]
}

// hasEndpoints reports whether a group has endpoints of the rank.
func (r *rankPlan) hasEndpoints(g int32) bool { return g != noGroup && r.groups[g].endpoints > 0 }

// takeServable sets r.entries to those unserved entries that have a group with endpoints, and returns the others. They
// reuse the memory of unserved.
func (r *rankPlan) takeServable(unserved []int32) (others []int32) {
	r.entries, others = r.entries[:0], unserved[:0]
	for _, e := range unserved {
		if slices.ContainsFunc(r.classes.groupsOf(int(e)), r.hasEndpoints) {
			r.entries = append(r.entries, e)
		} else {
			others = append(others, e)
		}
	}
	return others
}

// buildComponents builds the components: each endpoint class and each entry links all of its groups.
func (r *rankPlan) buildComponents() {
	r.parent, r.componentOfRoot = zeroed(r.parent, len(r.groups)), zeroed(r.componentOfRoot, len(r.groups))
	r.components = r.components[:0]
	for g := range r.parent {
		r.parent[g] = int32(g)
	}
	for class := range r.counts {
		if r.counts[class] > 0 {
			r.link(r.groupsOf(class))
		}
	}
	for _, e := range r.entries {
		r.link(r.classes.groupsOf(int(e)))
	}
	for g := range r.groups {
		root := r.root(int32(g))
		if r.componentOfRoot[root] == 0 && r.hasEndpoints(int32(g)) {
			r.components = append(r.components, component{})
			r.componentOfRoot[root] = int32(len(r.components))
		}
		r.groups[g].component = r.componentOfRoot[root] - 1
	}
}

// link joins those of the groups that have endpoints.
func (r *rankPlan) link(groups []int32) {
	first := int32(noGroup)
	for _, g := range groups {
		switch {
		case !r.hasEndpoints(g):
		case first == noGroup:
			first = r.root(g)
		default:
			r.parent[r.root(g)] = first
		}
	}
}

// root returns the root of a group's component tree, and shortens the path to it.
func (r *rankPlan) root(g int32) int32 {
	for r.parent[g] != g {
		r.parent[g] = r.parent[r.parent[g]]
		g = r.parent[g]
	}
	return g
}

// componentOf returns the component of a class or entry with these groups, or nil if none has endpoints.
func (r *rankPlan) componentOf(groups []int32) *component {
	if number := r.componentNumber(groups); number != noGroup {
		return &r.components[number]
	}
	return nil
}

// componentNumber returns the number of the component that componentOf returns, or noGroup if there is none.
func (r *rankPlan) componentNumber(groups []int32) int32 {
	if index := slices.IndexFunc(groups, r.hasEndpoints); index >= 0 {
		return r.groups[groups[index]].component
	}
	return noGroup
}

// scale sums up the demand of each component's nodes, and sets the capacity of its endpoints.
func (r *rankPlan) scale(limit uint64) {
	for class, count := range r.counts {
		if c := r.componentOf(r.groupsOf(class)); c != nil {
			c.endpoints += count
		}
	}
	for _, e := range r.entries {
		c, sum := r.componentOf(r.classes.groupsOf(int(e))), &r.classes.totals[e]
		c.demand += sum.demand
		c.open += sum.open
		c.squares += sum.squares
	}
	for i := range r.components {
		r.components[i].uniform = r.components[i].demand == 0
	}
	for _, e := range r.entries {
		if c := r.componentOf(r.classes.groupsOf(int(e))); c.uniform {
			c.demand += r.classes.totals[e].nodes
			c.squares += r.classes.totals[e].nodes
		}
	}
	for i := range r.components {
		r.components[i].scale(limit)
	}
	for _, e := range r.entries {
		groups, sum := r.classes.groupsOf(int(e)), &r.classes.totals[e]
		c := r.componentOf(groups)
		for _, g := range groups {
			if r.hasEndpoints(g) {
				r.groups[g].demand += c.demandOf(sum)
				r.groups[g].open += sum.open
			}
		}
	}
}

// scale chooses the smallest unit with which the total capacity of the endpoints does not overflow.
func (c *component) scale(limit uint64) {
	demand := max(c.demand, 1) // without nodes there is no demand, but endpoints have a capacity
	shift := max(0, 61-bits.Len64(c.endpoints*limit*demand))
	c.unit = 100 * c.endpoints << shift
	c.maxLoad = limit * demand << shift
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

// amountOf returns the amount of an entry. The total of each kind is the same, so the limit is, too. If no node of the
// component has open connections, they are distributed like new ones.
func (c *component) amountOf(sum *sums, kind kind) uint64 {
	if kind == openConnections && c.open > 0 {
		return mulDiv(c.demand*c.unit, sum.open, c.open)
	}
	return c.demandOf(sum) * c.unit
}

// effectiveNodes returns the number of nodes of equal demand that would cancel out each other's rounding errors as well
// as the component's nodes do.
func (c *component) effectiveNodes() uint64 {
	high, low := bits.Mul64(c.demand, c.demand)
	effectiveNodes, _ := bits.Div64(high, low, max(c.squares, 1))
	return effectiveNodes
}

// assignAll places as much as possible at each key, and at all keys but the last one only a portion of that, of One.
func (r *rankPlan) assignAll(portion uint64) {
	keys := len(r.endpointClasses.keys)
	for kind := range r.kinds {
		r.loads[kind], r.addedLoads[kind] = zeroed(r.loads[kind], len(r.counts)), zeroed(r.addedLoads[kind], len(r.counts)*keys)
		r.remaining[kind] = zeroed(r.remaining[kind], len(r.entries))
		for i, e := range r.entries {
			r.remaining[kind][i] = r.componentOf(r.classes.groupsOf(int(e))).amountOf(&r.classes.totals[e], kind)
		}
	}
	for g := range r.groups {
		r.groups[g].assignment = assignment{}
	}
	for k := range keys - 1 {
		r.assign(k, portion)
	}
	r.assign(keys-1, One)
}

// hasOverflow reports whether the last key matches all endpoints, and still does not place all demand.
func (r *rankPlan) hasOverflow() bool {
	last := len(r.endpointClasses.keys) - 1
	return r.endpointClasses.keys[last] == policy.AnyNode && r.isConstrained(r.endpointClasses.firstGroup[last])
}

// portionSteps is the number of halvings by which assignLess finds the portion.
const portionSteps = 10

// assignLess places the largest portion without overflow that it finds. Nothing at all would be without overflow: then
// all endpoints have the mean load of both kinds.
func (r *rankPlan) assignLess() {
	low, high := uint64(0), uint64(One)
	for range portionSteps {
		portion := (low + high) / 2
		if r.assignAll(portion); r.hasOverflow() {
			high = portion
		} else {
			low = portion
		}
	}
	r.assignAll(low)
}

// assign places as much as possible at one key, or a portion of that, of One.
func (r *rankPlan) assign(k int, portion uint64) {
	keys := len(r.endpointClasses.keys)
	groupOf := func(class int32) int32 { return r.endpointClasses.groups[int(class)*keys+k] }
	order := r.order[:0]
	for class, count := range r.counts {
		if count > 0 && groupOf(int32(class)) != noGroup {
			order = append(order, int32(class))
		}
	}
	r.order = order
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(groupOf(a), groupOf(b)) })
	first := r.endpointClasses.firstGroup[k]
	r.sumRemaining(k)
	for len(order) > 0 {
		g, size := groupOf(order[0]), 1
		for size < len(order) && groupOf(order[size]) == g {
			size++
		}
		r.waterFill(k, &r.groups[g], order[:size], r.byGroup[g-first], portion)
		order = order[size:]
	}
	for i, e := range r.entries {
		g := r.classes.groups[int(e)*keys+k]
		if !r.hasEndpoints(g) || r.groups[g].remaining == 0 {
			continue
		}
		for kind := range r.kinds {
			amount := &r.remaining[kind][i]
			*amount -= mulDiv(*amount, r.groups[g].assigned, r.groups[g].remaining)
		}
	}
}

// sumRemaining sets the remaining demand of the nodes of each group of a key.
func (r *rankPlan) sumRemaining(k int) {
	keys, first := len(r.endpointClasses.keys), r.endpointClasses.firstGroup[k]
	r.byGroup = zeroed(r.byGroup, int(r.endpointClasses.firstGroup[k+1]-first))
	for i, e := range r.entries {
		if g := r.classes.groups[int(e)*keys+k]; r.hasEndpoints(g) {
			for kind := range r.kinds {
				r.byGroup[g-first][kind] += r.remaining[kind][i]
			}
		}
	}
}

// waterFill gives a group's endpoints the demand of its nodes, up to their capacity, or a portion of that: it raises the
// least loaded endpoints to one level.
func (r *rankPlan) waterFill(k int, g *group, classes []int32, remaining [numKinds]uint64, portion uint64) {
	c := &r.components[g.component]
	for kind := range remaining {
		if remaining[kind] <= c.epsilon {
			remaining[kind] = 0
		}
	}
	if remaining[openConnections] > remaining[newConnections] {
		g.kind = openConnections
	}
	g.remaining = remaining[g.kind]
	if g.capacity = r.amountAt(c.maxLoad, g, classes, remaining); g.capacity <= c.epsilon {
		g.capacity = 0
	}
	g.assigned = mulDiv(min(g.remaining, g.capacity), portion, One)
	if g.assigned == 0 {
		return
	}
	level := r.levelOf(g, classes, remaining)
	for _, class := range classes {
		amount := r.roomBelow(level, g, int(class), remaining)
		for kind := range r.kinds {
			added := mulDiv(amount, remaining[kind], g.remaining)
			r.addedLoads[kind][k*len(r.counts)+int(class)] = added
			r.loads[kind][class] += added
		}
	}
}

// levelOf returns the highest level to which the assigned amount can raise a group's endpoints. The amount is linear in
// the level between the loads of endpoints, so a few interpolations suffice.
func (r *rankPlan) levelOf(g *group, classes []int32, remaining [numKinds]uint64) uint64 {
	low, high := uint64(0), r.components[g.component].maxLoad
	below, above := uint64(0), r.amountAt(high, g, classes, remaining)
	if above <= g.assigned {
		return high
	}
	for isBisection := false; high-low > 1; {
		width, level := high-low, low+(high-low)/2
		if !isBisection {
			level = min(max(low+mulDiv(width, g.assigned-below, above-below), low+1), high-1)
		}
		if amount := r.amountAt(level, g, classes, remaining); amount <= g.assigned {
			low, below = level, amount
		} else {
			high, above = level, amount
		}
		isBisection = !isBisection && high-low > width/2
	}
	return low
}

// amountAt returns the amount of a group's kind that raises its endpoints to a level.
func (r *rankPlan) amountAt(level uint64, g *group, classes []int32, remaining [numKinds]uint64) (amount uint64) {
	for _, class := range classes {
		amount += r.counts[class] * r.roomBelow(level, g, int(class), remaining)
	}
	return amount
}

// roomBelow returns the amount of a group's kind that raises one endpoint of a class to a level, in at least one kind.
// Amounts of all kinds are added in the proportion in which they remain. If nothing remains, the room is that of the kind
// with the higher load.
func (r *rankPlan) roomBelow(level uint64, g *group, class int, remaining [numKinds]uint64) uint64 {
	room := uint64(math.MaxUint64)
	for kind := range r.kinds {
		left := level - min(level, r.loads[kind][class])
		switch {
		case kind == g.kind, g.remaining == 0:
			room = min(room, left)
		case remaining[kind] > 0:
			high, low := bits.Mul64(left, g.remaining)
			if high < remaining[kind] { // else the quotient is larger than any amount
				quotient, _ := bits.Div64(high, low, remaining[kind])
				room = min(room, quotient)
			}
		}
	}
	return room
}

// load returns the load of one endpoint of a class, in the kind that loads it more.
func (r *rankPlan) load(class int) uint64 {
	load := uint64(0)
	for kind := range r.kinds {
		load = max(load, r.loads[kind][class])
	}
	return load
}

// assignOverflow places the demand that no endpoint can accept within the bound at the last key that matches, beyond
// the bound. Such demand exists if hard keys overlap, or if nodes or endpoints lack a label.
func (r *rankPlan) assignOverflow() {
	for kind := range r.kinds {
		var overflow []uint64 // by group
		for i, e := range r.entries {
			groups := r.classes.groupsOf(int(e))
			if g := groups[r.lastKey(groups)]; r.isConstrained(g) {
				if overflow == nil {
					overflow = make([]uint64, len(r.groups))
				}
				overflow[g] += r.remaining[kind][i]
			}
		}
		if overflow != nil {
			r.distribute(overflow, r.loads[kind])
		}
	}
	for class, count := range r.counts {
		for _, g := range r.groupsOf(class) {
			if count > 0 && g != noGroup {
				group := &r.groups[g]
				group.busiest = max(group.busiest, r.load(class))
				r.components[group.component].busiest = max(r.components[group.component].busiest, group.busiest)
			}
		}
	}
}

// distribute adds an amount for each group to the loads of endpoint classes, in the proportions in which the group's
// nodes use these classes at its key.
func (r *rankPlan) distribute(amounts, loads []uint64) {
	weights := make([]uint64, len(r.counts))
	for k := range r.endpointClasses.keys {
		for g := r.endpointClasses.firstGroup[k]; g < r.endpointClasses.firstGroup[k+1]; g++ {
			if amounts[g] == 0 {
				continue
			}
			sum := r.weigh(k, g, weights)
			for class, weight := range weights {
				loads[class] += mulDiv(amounts[g], weight, sum)
			}
		}
	}
}

// isConstrained reports whether a group's nodes had more demand left than its endpoints could accept.
func (r *rankPlan) isConstrained(g int32) bool {
	group := &r.groups[g]
	return group.remaining-group.assigned > r.components[group.component].epsilon
}

// lastKey returns the last key whose group has endpoints.
func (r *rankPlan) lastKey(groups []int32) int {
	k := len(groups) - 1
	for k > 0 && !r.hasEndpoints(groups[k]) {
		k--
	}
	return k
}

// weigh writes the weight of one endpoint of each class for a group's nodes at its key, and returns the sum of the
// weights of all endpoints.
func (r *rankPlan) weigh(k int, g int32, weights []uint64) (sum uint64) {
	for class, count := range r.counts {
		weights[class] = 0
		if count > 0 {
			weights[class] = r.weightOf(k, g, class)
			sum += count * weights[class]
		}
	}
	return sum
}

// weightOf returns the weight of one endpoint of a class, for connections that a group's nodes place at its key. The
// weight is the load that the key added. If it added none, it is the capacity that remained; if none remained, all
// endpoints weigh the same. The class must have endpoints.
func (r *rankPlan) weightOf(k int, g int32, class int) uint64 {
	group := &r.groups[g]
	switch {
	case r.endpointClasses.groups[class*len(r.endpointClasses.keys)+k] != g:
		return 0
	case group.assigned > 0:
		return r.addedLoads[group.kind][k*len(r.counts)+class]
	case group.capacity > 0:
		load := uint64(0)
		for kind := range r.kinds {
			ofKind := uint64(0)
			for earlier := range k {
				ofKind += r.addedLoads[kind][earlier*len(r.counts)+class]
			}
			load = max(load, ofKind)
		}
		return r.components[group.component].maxLoad - load
	}
	return 1
}
