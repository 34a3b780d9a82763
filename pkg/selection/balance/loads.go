package balance

// Load is the load that an endpoint expects from all nodes together, per mille of the mean of the endpoints between
// which the load is balanced: 1200 is 1.2 times the mean.
type Load struct {
	// Bounded is the load with the plan. Unbounded is the load if each node sent all connections to the endpoints of its
	// first key that has any.
	Bounded, Unbounded uint64
}

// Loads returns the load that each endpoint expects, in the given order of the endpoints. It is zero for endpoints that
// no node may use.
func (p *Plan) Loads() []Load {
	loads := make([]Load, len(p.endpointClasses.of))
	for rank := range p.splits {
		s := &p.splits[rank]
		unbounded := s.unbounded()
		for i, class := range p.endpointClasses.of {
			if class == noClass || s.counts[class] == 0 {
				continue
			}
			if c := s.componentOf(s.groupsOf(int(class))); c != nil && c.demand > 0 {
				loads[i] = Load{Bounded: perMille(s.loads[class], c.mean), Unbounded: perMille(unbounded[class], c.mean)}
			}
		}
	}
	return loads
}

// unbounded returns the load of one endpoint of each class if all connections stayed at the first key that has
// endpoints.
func (s *rankPlan) unbounded() []uint64 {
	asked := make([]uint64, len(s.groups))
	for _, e := range s.entries {
		for _, g := range s.classes.groupsOf(int(e)) {
			if s.has(g) {
				c := &s.components[s.groups[g].component]
				asked[g] += c.demandOf(&s.classes.sums[e]) * c.unit
				break
			}
		}
	}
	loads := make([]uint64, len(s.counts))
	for class := range s.counts {
		for _, g := range s.groupsOf(class) {
			if s.has(g) {
				loads[class] += asked[g] / s.groups[g].endpoints
			}
		}
	}
	return loads
}

// LoadsUnder returns the load of each endpoint, per mille of the mean, if the nodes' demand differed from the planned
// one. It is in the given order of the endpoints. Both demands must be of the same node classes.
func (p *Plan) LoadsUnder(demand Demand) []uint64 {
	var nodes serviceClasses
	nodes.build(demand, p.endpointClasses) // the same entries in the same order: they depend on the classes only
	loads := make([]uint64, len(p.endpointClasses.of))
	for rank := range p.splits {
		s := &p.splits[rank]
		under := s.under(nodes.sums)
		for i, class := range p.endpointClasses.of {
			if class != noClass && s.counts[class] > 0 {
				loads[i] = under[class]
			}
		}
	}
	return loads
}

// under returns the load of one endpoint of each class if the entries had these sums, per mille of the mean of its
// component.
func (s *rankPlan) under(sums []sums) []uint64 {
	all := make([]uint64, len(s.components))
	for _, e := range s.entries {
		all[s.componentNumber(s.classes.groupsOf(int(e)))] += sums[e].demand
	}
	placed := make([]uint64, len(s.groups)) // in units of its component's One
	for _, e := range s.entries {
		groups := s.classes.groupsOf(int(e))
		whole := all[s.componentNumber(groups)]
		if whole == 0 {
			continue
		}
		for _, allocation := range s.allocations(groups) {
			placed[allocation.group] += part(allocation.Part, sums[e].demand, whole)
		}
	}
	loads := make([]uint64, len(s.counts))
	s.distribute(placed, loads)
	for class := range loads {
		if c := s.componentOf(s.groupsOf(class)); c != nil {
			loads[class] = perMille(loads[class], One/c.endpoints)
		}
	}
	return loads
}
