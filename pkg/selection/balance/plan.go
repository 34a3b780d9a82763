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
	demand  Demand
	places  *Places
	splits  [model.Ranks]split // by rank
	nodes   crowd
	waiting []int32 // entries that no rank has served so far
}

// NewPlan returns a plan that is made.
func NewPlan(demand Demand, places *Places, limit int) *Plan {
	p := &Plan{}
	p.Make(demand, places, limit)
	return p
}

// Make splits the demand over the endpoints, whatever the plan was before. No endpoint expects more than the limit, in
// percent of the mean, from 100 to 1000. Within that it places as much as possible at the first key, then as much as
// possible at the second, and so on; among those ways it chooses the one with the least load on the busiest endpoint;
// and what a group cannot take is taken from all its nodes in proportion.
//
// The keys of the places must be those of the cells that the demand is of, or the first of them.
func (p *Plan) Make(demand Demand, places *Places, limit int) {
	p.demand, p.places = demand, places
	p.nodes.gather(demand, places)
	p.waiting = p.waiting[:0]
	for e := range p.nodes.sums {
		if p.nodes.sums[e].nodes > 0 {
			p.waiting = append(p.waiting, int32(e))
		}
	}
	for rank := range p.splits {
		s := &p.splits[rank]
		s.rank, s.places, s.crowd = model.Rank(rank), places, &p.nodes
		if !s.count(model.Rank(rank)) {
			continue
		}
		// Nodes that no endpoint of this rank can serve wait for the next rank.
		p.waiting = s.admit(p.waiting)
		s.join()
		s.scale(uint64(limit))
		for k := range places.keys {
			s.place(k)
		}
		s.finish()
	}
}

// cleared returns a slice of zeros, in the memory of another one if it is large enough.
func cleared[T any](memory []T, size int) []T {
	memory = slices.Grow(memory[:0], size)[:size]
	clear(memory)
	return memory
}

// split is the plan among the endpoints of one rank, and the nodes that they serve.
//
// All amounts are in units so small that rounding does not matter: a component's total is about 2^61 at the limit.
type split struct {
	rank       model.Rank
	places     *Places
	groups     []group     // all keys'
	components []component // the nodes and endpoints that keys link, directly or through others
	counts     []uint64    // the rank's endpoints, by place
	loads      []uint64    // what one endpoint got so far, by place
	raised     []uint64    // what one endpoint got at a key, by key and place

	// While it is made:
	crowd   *crowd
	entries []int32  // those that it serves
	left    []uint64 // what each of them has not placed yet
	parent  []int32  // of each group, in the tree of its component
	number  []int32  // of the component that has this group as its root, plus one
	order   []int32  // the places by group, the least loaded first
}

// group is the nodes and endpoints with one value of one key.
type group struct {
	component int32
	endpoints uint64
	demand    uint64 // of its nodes
	asked     uint64 // what its nodes had left when its key's turn came
	room      uint64 // what its endpoints could take then
	placed    uint64 // what they took
	busiest   uint64 // what the busiest of them gets from all keys together
}

type component struct {
	endpoints uint64
	demand    uint64
	squares   uint64 // the sum of each node's demand times itself
	// each: no node has any demand, so each counts 1.
	each    bool
	unit    uint64 // what a node asks for each 1 of demand
	full    uint64 // what an endpoint may take
	mean    uint64 // what an endpoint gets on average
	dust    uint64 // not more than rounding can leave
	busiest uint64 // what the busiest endpoint gets
}

// dust is the part of a component's demand that counts as nothing: 1 of 2^dustBits, a million units and more. Rounding
// leaves less than a unit for each entry, endpoint and key. The smallest demand of a node is larger, in clusters of up
// to a billion nodes, and so is the amount that raises 65,535 endpoints by a unit.
const dustBits = 36

// count counts the rank's endpoints, and reports whether there are any.
func (s *split) count(rank model.Rank) (any bool) {
	p := s.places
	s.groups, s.counts = cleared(s.groups, len(p.values)), cleared(s.counts, len(p.count))
	for place, count := range p.count {
		if p.rank[place] != rank {
			continue
		}
		s.counts[place], any = count, true
		for _, g := range s.groupsOf(place) {
			if g != none {
				s.groups[g].endpoints += count
			}
		}
	}
	return any
}

// groupsOf returns the groups of a place.
func (s *split) groupsOf(place int) []int32 {
	keys := len(s.places.keys)
	return s.places.groups[place*keys : (place+1)*keys]
}

// has reports whether a group has endpoints of the rank.
func (s *split) has(g int32) bool { return g != none && s.groups[g].endpoints > 0 }

// admit takes those entries in that have a group with endpoints, and returns the others, in the same memory.
func (s *split) admit(waiting []int32) (others []int32) {
	s.entries, others = s.entries[:0], waiting[:0]
	for _, e := range waiting {
		if slices.ContainsFunc(s.crowd.of(int(e)), s.has) {
			s.entries = append(s.entries, e)
		} else {
			others = append(others, e)
		}
	}
	return others
}

// join finds the components: each place and each entry joins all of its groups.
func (s *split) join() {
	s.parent, s.number = cleared(s.parent, len(s.groups)), cleared(s.number, len(s.groups))
	s.components = s.components[:0]
	for g := range s.parent {
		s.parent[g] = int32(g)
	}
	for place := range s.counts {
		if s.counts[place] > 0 {
			s.link(s.groupsOf(place))
		}
	}
	for _, e := range s.entries {
		s.link(s.crowd.of(int(e)))
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
func (s *split) link(groups []int32) {
	first := int32(none)
	for _, g := range groups {
		switch {
		case !s.has(g):
		case first == none:
			first = s.root(g)
		default:
			s.parent[s.root(g)] = first
		}
	}
}

func (s *split) root(g int32) int32 {
	for s.parent[g] != g {
		s.parent[g] = s.parent[s.parent[g]]
		g = s.parent[g]
	}
	return g
}

// componentOf returns the component of a place or entry with some groups; nil if none has endpoints.
func (s *split) componentOf(groups []int32) *component {
	if number := s.componentNumber(groups); number != none {
		return &s.components[number]
	}
	return nil
}

// componentNumber returns the number of that component; none if there is none.
func (s *split) componentNumber(groups []int32) int32 {
	if at := slices.IndexFunc(groups, s.has); at >= 0 {
		return s.groups[groups[at]].component
	}
	return none
}

// scale finds out what each component's nodes ask and its endpoints may take.
func (s *split) scale(limit uint64) {
	for place, count := range s.counts {
		if c := s.componentOf(s.groupsOf(place)); c != nil {
			c.endpoints += count
		}
	}
	for _, e := range s.entries {
		c, sum := s.componentOf(s.crowd.of(int(e))), &s.crowd.sums[e]
		c.demand += sum.demand
		c.squares += sum.squares
	}
	for i := range s.components {
		s.components[i].each = s.components[i].demand == 0
	}
	for _, e := range s.entries {
		if c := s.componentOf(s.crowd.of(int(e))); c.each {
			c.demand += s.crowd.sums[e].nodes
			c.squares += s.crowd.sums[e].nodes
		}
	}
	for i := range s.components {
		s.components[i].scale(limit)
	}
	keys := len(s.places.keys)
	s.loads, s.raised = cleared(s.loads, len(s.counts)), cleared(s.raised, len(s.counts)*keys)
	s.left = cleared(s.left, len(s.entries))
	for i, e := range s.entries {
		groups := s.crowd.of(int(e))
		c := s.componentOf(groups)
		demand := c.demandOf(&s.crowd.sums[e])
		s.left[i] = demand * c.unit
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
	c.dust = c.mean * c.endpoints >> dustBits
}

// demandOf returns the demand of an entry.
func (c *component) demandOf(sum *tally) uint64 {
	if c.each {
		return sum.nodes
	}
	return sum.demand
}

// crowd is how many nodes of equal demand would cancel out each other's rounding errors as well as the component's
// nodes do.
func (c *component) crowd() uint64 {
	high, low := bits.Mul64(c.demand, c.demand)
	crowd, _ := bits.Div64(high, low, max(c.squares, 1))
	return crowd
}

// place places as much as it can at one key.
func (s *split) place(k int) {
	keys := len(s.places.keys)
	for i, e := range s.entries {
		if g := s.crowd.groups[int(e)*keys+k]; s.has(g) {
			s.groups[g].asked += s.left[i]
		}
	}
	order := s.order[:0]
	for place, count := range s.counts {
		if g := s.places.groups[place*keys+k]; count > 0 && g != none {
			group := &s.groups[g]
			group.room += count * (s.components[group.component].full - s.loads[place])
			order = append(order, int32(place))
		}
	}
	s.order = order
	groupOf := func(place int32) int32 { return s.places.groups[int(place)*keys+k] }
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(groupOf(a), groupOf(b)), cmp.Compare(s.loads[a], s.loads[b]))
	})
	for len(order) > 0 {
		g, size := groupOf(order[0]), 1
		for size < len(order) && groupOf(order[size]) == g {
			size++
		}
		s.fill(k, &s.groups[g], order[:size])
		order = order[size:]
	}
	for i, e := range s.entries {
		if g := s.crowd.groups[int(e)*keys+k]; s.has(g) && s.groups[g].asked > 0 {
			s.left[i] -= part(s.left[i], s.groups[g].placed, s.groups[g].asked)
		}
	}
}

// fill gives a group's endpoints what its nodes ask, as far as there is room: it raises the least loaded ones to one
// level. The places are in the order of their loads.
func (s *split) fill(k int, g *group, places []int32) {
	c := &s.components[g.component]
	if g.room <= c.dust {
		g.room = 0
	}
	if g.asked <= c.dust {
		g.asked = 0
	}
	rest := min(g.asked, g.room)
	if rest == 0 {
		return
	}
	level, width := c.full, uint64(0)
	for i, place := range places {
		load, next := s.loads[place], c.full
		if i+1 < len(places) {
			next = s.loads[places[i+1]]
		}
		width += s.counts[place]
		if step := width * (next - load); step < rest {
			rest -= step
			continue
		}
		level = load + rest/width
		break
	}
	raised := s.raised[k*len(s.counts):]
	for _, place := range places {
		if s.loads[place] < level {
			raised[place] = level - s.loads[place]
			s.loads[place] = level
		}
	}
	g.placed = min(g.asked, g.room)
}

// finish adds what no endpoint can take within the bound: hard keys that cross, or nodes and endpoints without a label,
// can ask for more than there is room. It goes to the last key that matches, beyond the bound.
func (s *split) finish() {
	var over []uint64 // by group
	for i, e := range s.entries {
		groups := s.crowd.of(int(e))
		if g := groups[s.last(groups)]; s.isShort(g) {
			if over == nil {
				over = make([]uint64, len(s.groups))
			}
			over[g] += s.left[i]
		}
	}
	if over != nil {
		s.spread(over, s.loads)
	}
	for place, count := range s.counts {
		for _, g := range s.groupsOf(place) {
			if count > 0 && g != none {
				group := &s.groups[g]
				group.busiest = max(group.busiest, s.loads[place])
				s.components[group.component].busiest = max(s.components[group.component].busiest, s.loads[place])
			}
		}
	}
}

// spread adds an amount for each group to the loads of places, in the proportion in which a group's nodes spread what they
// place at its key.
func (s *split) spread(amounts, loads []uint64) {
	weights := make([]uint64, len(s.counts))
	for k := range s.places.keys {
		for g := s.places.first[k]; g < s.places.first[k+1]; g++ {
			if amounts[g] == 0 {
				continue
			}
			sum := s.weigh(k, g, weights)
			for place, weight := range weights {
				loads[place] += part(amounts[g], weight, sum)
			}
		}
	}
}

// isShort reports whether a group's nodes had more left than its endpoints could take.
func (s *split) isShort(g int32) bool {
	group := &s.groups[g]
	return group.asked-group.placed > s.components[group.component].dust
}

// last returns the last key whose group has endpoints.
func (s *split) last(groups []int32) int {
	k := len(groups) - 1
	for k > 0 && !s.has(groups[k]) {
		k--
	}
	return k
}

// weigh writes how much one endpoint of each place gets of what a group's nodes place at its key, and returns the sum
// over all endpoints.
func (s *split) weigh(k int, g int32, weights []uint64) (sum uint64) {
	for place, count := range s.counts {
		weights[place] = 0
		if count > 0 {
			weights[place] = s.weightOf(k, g, place)
			sum += count * weights[place]
		}
	}
	return sum
}

// weightOf returns how much one endpoint of a place with endpoints gets of what a group's nodes place at its key, in
// proportion: as they were raised; else as they had room; else all alike.
func (s *split) weightOf(k int, g int32, place int) uint64 {
	group := &s.groups[g]
	switch {
	case s.places.groups[place*len(s.places.keys)+k] != g:
		return 0
	case group.placed > 0:
		return s.raised[k*len(s.counts)+place]
	case group.room > 0:
		weight := s.components[group.component].full
		for before := range k {
			weight -= s.raised[before*len(s.counts)+place]
		}
		return weight
	}
	return 1
}
