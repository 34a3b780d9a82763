package balance_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// The minimum-cost flow (flow_test.go) checks only the sum over all nodes. This file is the reference for each node:
// demand that a group cannot accept is taken from all its nodes in proportion, nodes without demand have shares too,
// and groups may cross. It computes exact fractions for each endpoint and node, without classes and without rounding.

func rat(n int64) *big.Rat { return big.NewRat(n, 1) }

// reference is the result at a key.
type reference struct {
	members           [][]int    // of each group, as indices into the problem's endpoints
	groupOf           []int      // of each node; -1 means none
	demand            []*big.Rat // by group
	assigned          []*big.Rat
	capacity          []*big.Rat
	added             []*big.Rat // by endpoint
	remainingCapacity []*big.Rat
}

func (s *scenario) references(p *problem) []reference {
	capacity, remaining, loads := rat(int64(s.limit)*p.total), make([]*big.Rat, len(p.nodes)), make([]*big.Rat, len(p.endpoints))
	for i := range remaining {
		remaining[i] = rat(100 * int64(len(p.endpoints)) * p.demand[i])
	}
	for j := range loads {
		loads[j] = rat(0)
	}
	byKey := make([]reference, len(s.keys))
	for k := range byKey {
		ref := &byKey[k]
		s.buildGroups(p, k, ref)
		for j := range p.endpoints {
			ref.added = append(ref.added, rat(0))
			ref.remainingCapacity = append(ref.remainingCapacity, new(big.Rat).Sub(capacity, loads[j]))
		}
		for g, members := range ref.members {
			demand, groupCapacity := rat(0), rat(0)
			for i := range p.nodes {
				if ref.groupOf[i] == g {
					demand.Add(demand, remaining[i])
				}
			}
			for _, j := range members {
				groupCapacity.Add(groupCapacity, ref.remainingCapacity[j])
			}
			placed := demand
			if groupCapacity.Cmp(demand) < 0 {
				placed = groupCapacity
			}
			ref.demand, ref.capacity, ref.assigned = append(ref.demand, demand), append(ref.capacity, groupCapacity), append(ref.assigned, placed)
			fillToLevel(ref, members, loads, placed)
			for i := range p.nodes {
				if ref.groupOf[i] == g && demand.Sign() > 0 {
					kept := new(big.Rat).Quo(placed, demand)
					remaining[i] = new(big.Rat).Mul(remaining[i], kept.Sub(rat(1), kept))
				}
			}
		}
	}
	return byKey
}

// buildGroups computes a key's groups.
func (s *scenario) buildGroups(p *problem, k int, ref *reference) {
	byValue := map[string]int{}
	for j, i := range p.endpoints {
		value, known := s.valueOf(&s.endpoints[i], s.keys[k])
		if s.keys[k] == "*" {
			value, known = "", true
		}
		if !known {
			continue
		}
		g, seen := byValue[value]
		if !seen {
			g = len(ref.members)
			byValue[value] = g
			ref.members = append(ref.members, nil)
		}
		ref.members[g] = append(ref.members[g], j)
	}
	for _, name := range p.nodes {
		ref.groupOf = append(ref.groupOf, slices.IndexFunc(ref.members, func(members []int) bool {
			return s.sharesValue(name, &s.endpoints[p.endpoints[members[0]]], s.keys[k])
		}))
	}
}

// fillToLevel raises the least loaded members to one level, in total by placed. It tries how many of them the level
// covers, from all to one.
func fillToLevel(ref *reference, members []int, loads []*big.Rat, placed *big.Rat) {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b int) int { return loads[a].Cmp(loads[b]) })
	for count := len(sorted); count > 0; count-- {
		level := new(big.Rat).Set(placed)
		for _, j := range sorted[:count] {
			level.Add(level, loads[j])
		}
		level.Quo(level, rat(int64(count)))
		if level.Cmp(loads[sorted[count-1]]) < 0 {
			continue
		}
		for _, j := range sorted[:count] {
			ref.added[j] = new(big.Rat).Sub(level, loads[j])
			loads[j] = level
		}
		return
	}
}

// fractionsOf returns the fractions of the connections of the problem's i-th node to each of its endpoints.
func (p *problem) fractionsOf(byKey []reference, i int) []float64 {
	fractions, remaining, last := make([]float64, len(p.endpoints)), rat(1), 0
	for k := range byKey {
		if byKey[k].groupOf[i] >= 0 {
			last = k
		}
	}
	for k := range byKey {
		ref := &byKey[k]
		g := ref.groupOf[i]
		if g < 0 {
			continue
		}
		fraction, weights := rat(0), ref.added
		switch {
		case ref.demand[g].Sign() > 0:
			fraction.Quo(ref.assigned[g], ref.demand[g]).Mul(fraction, remaining)
		case ref.capacity[g].Sign() > 0:
			fraction.Set(remaining)
		}
		if ref.assigned[g].Sign() == 0 {
			weights = ref.remainingCapacity
		}
		if k == last {
			fraction.Set(remaining)
		}
		remaining = new(big.Rat).Sub(remaining, fraction)
		sum := rat(0)
		for _, j := range ref.members[g] {
			sum.Add(sum, weights[j])
		}
		for _, j := range ref.members[g] {
			part := new(big.Rat)
			if sum.Sign() > 0 {
				part.Quo(weights[j], sum)
			} else {
				part.SetFrac64(1, int64(len(ref.members[g])))
			}
			value, _ := part.Mul(part, fraction).Float64()
			fractions[j] += value
		}
	}
	return fractions
}

// TestSharesEqualExactFractions compares each node's shares with exact fractions.
func TestSharesEqualExactFractions(t *testing.T) {
	withoutDemand := 0
	check := func(s *scenario, _ *rand.Rand) {
		if len(s.endpoints) > 20 {
			s.endpoints = s.endpoints[:20]
		}
		withoutDemand += s.compareWithReference(t)
	}
	randomScenarios(t, 100, false, check)
	randomScenarios(t, 200, true, check)
	if withoutDemand < 100 {
		t.Errorf("only %d nodes are without demand, want at least 100", withoutDemand)
	}
}

// compareWithReference compares each node's shares with the fractions, and returns the number of nodes without demand.
func (s *scenario) compareWithReference(t *testing.T) (withoutDemand int) {
	t.Helper()
	rows, found := s.rows(), s.problems()
	for index := range found {
		p := &found[index]
		references := s.references(p)
		for i, name := range p.nodes {
			if p.demand[i] == 0 {
				withoutDemand++
			}
			want, got := p.fractionsOf(references, i), rows[name]
			for j, endpoint := range p.endpoints {
				if fraction := float64(got.Fractions[endpoint]) / balance.One; math.Abs(fraction-want[j]) > 1e-6 {
					t.Errorf("%s sends %f to %v, want %f", name, fraction, s.endpoints[endpoint].Addr, want[j])
				}
			}
		}
	}
	return withoutDemand
}
