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
	loads := make([]Load, len(p.endpointClasses.classOf))
	for rank := range p.byRank {
		r := &p.byRank[rank]
		unbounded := r.unbounded()
		for i, class := range p.endpointClasses.classOf {
			if class == noClass || r.counts[class] == 0 {
				continue
			}
			if c := r.componentOf(r.groupsOf(int(class))); c != nil && c.demand > 0 {
				loads[i] = Load{Bounded: perMille(r.load(int(class)), c.mean), Unbounded: perMille(unbounded[class], c.mean)}
			}
		}
	}
	return loads
}

// unbounded returns the load of one endpoint of each class if all connections stayed at the first key that has
// endpoints.
func (r *rankPlan) unbounded() []uint64 {
	loads := make([]uint64, len(r.counts))
	for kind := range r.kinds {
		demand := make([]uint64, len(r.groups))
		for _, e := range r.entries {
			for _, g := range r.classes.groupsOf(int(e)) {
				if r.hasEndpoints(g) {
					demand[g] += r.components[r.groups[g].component].amountOf(&r.classes.totals[e], kind)
					break
				}
			}
		}
		for class := range r.counts {
			load := uint64(0)
			for _, g := range r.groupsOf(class) {
				if r.hasEndpoints(g) {
					load += demand[g] / r.groups[g].endpoints
				}
			}
			loads[class] = max(loads[class], load)
		}
	}
	return loads
}

// LoadsUnder returns the load of each endpoint, per mille of the mean, under a demand that may differ from the planned
// one, and of the kind of connections that loads it most. Loads are in the given order of the endpoints. Both demands
// must be of the same node classes.
func (p *Plan) LoadsUnder(demand Demand) []uint64 {
	var classes serviceClasses
	classes.build(demand, p.endpointClasses) // the same entries in the same order: they depend on the classes only
	loads := make([]uint64, len(p.endpointClasses.classOf))
	for rank := range p.byRank {
		r := &p.byRank[rank]
		for kind := range demand.kinds() {
			loadsOfRank := r.loadsUnder(classes.totals, kind)
			for i, class := range p.endpointClasses.classOf {
				if class != noClass && r.counts[class] > 0 {
					loads[i] = max(loads[i], loadsOfRank[class])
				}
			}
		}
	}
	return loads
}

// loadsUnder returns the load of one endpoint of each class if the entries had the given sums, per mille of the mean of
// the endpoint's component.
func (r *rankPlan) loadsUnder(entrySums []sums, kind kind) []uint64 {
	totals := make([]uint64, len(r.components))
	for _, e := range r.entries {
		totals[r.componentNumber(r.classes.groupsOf(int(e)))] += entrySums[e].of(kind)
	}
	placed := make([]uint64, len(r.groups)) // as a fraction of One, which is all demand of the component
	for _, e := range r.entries {
		groups := r.classes.groupsOf(int(e))
		total := totals[r.componentNumber(groups)]
		if total == 0 {
			continue
		}
		for _, allocation := range r.allocations(groups) {
			placed[allocation.group] += mulDiv(allocation.Fraction, entrySums[e].of(kind), total)
		}
	}
	loads := make([]uint64, len(r.counts))
	r.distribute(placed, loads)
	for class := range loads {
		if c := r.componentOf(r.groupsOf(class)); c != nil {
			loads[class] = perMille(loads[class], One/c.endpoints)
		}
	}
	return loads
}
