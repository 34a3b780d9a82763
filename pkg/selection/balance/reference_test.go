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
	members  [][]int    // of each group, as indices into the problem's endpoints
	groupOf  []int      // of each node; -1 means none
	demand   []*big.Rat // by group
	assigned []*big.Rat
	room     []*big.Rat
	raised   []*big.Rat // by endpoint
	free     []*big.Rat
}

func (w *world) references(p *problem) []reference {
	capacity, remaining, loads := rat(int64(w.limit)*p.total), make([]*big.Rat, len(p.nodes)), make([]*big.Rat, len(p.endpoints))
	for i := range remaining {
		remaining[i] = rat(100 * int64(len(p.endpoints)) * p.demand[i])
	}
	for j := range loads {
		loads[j] = rat(0)
	}
	byKey := make([]reference, len(w.keys))
	for k := range byKey {
		t := &byKey[k]
		w.group(p, k, t)
		for j := range p.endpoints {
			t.raised = append(t.raised, rat(0))
			t.free = append(t.free, new(big.Rat).Sub(capacity, loads[j]))
		}
		for g, members := range t.members {
			asked, room := rat(0), rat(0)
			for i := range p.nodes {
				if t.groupOf[i] == g {
					asked.Add(asked, remaining[i])
				}
			}
			for _, j := range members {
				room.Add(room, t.free[j])
			}
			placed := asked
			if room.Cmp(asked) < 0 {
				placed = room
			}
			t.demand, t.room, t.assigned = append(t.demand, asked), append(t.room, room), append(t.assigned, placed)
			raise(t, members, loads, placed)
			for i := range p.nodes {
				if t.groupOf[i] == g && asked.Sign() > 0 {
					kept := new(big.Rat).Quo(placed, asked)
					remaining[i] = new(big.Rat).Mul(remaining[i], kept.Sub(rat(1), kept))
				}
			}
		}
	}
	return byKey
}

// buildGroups computes a key's groups.
func (w *world) group(p *problem, k int, t *reference) {
	byValue := map[string]int{}
	for j, i := range p.endpoints {
		value, known := w.valueOf(&w.endpoints[i], w.keys[k])
		if w.keys[k] == "*" {
			value, known = "", true
		}
		if !known {
			continue
		}
		g, seen := byValue[value]
		if !seen {
			g = len(t.members)
			byValue[value] = g
			t.members = append(t.members, nil)
		}
		t.members[g] = append(t.members[g], j)
	}
	for _, name := range p.nodes {
		t.groupOf = append(t.groupOf, slices.IndexFunc(t.members, func(members []int) bool {
			return w.shares(name, &w.endpoints[p.endpoints[members[0]]], w.keys[k])
		}))
	}
}

// fillToLevel raises the least loaded members to one level, in total by placed. It tries how many of them the level
// covers, from all to one.
func raise(t *reference, members []int, loads []*big.Rat, placed *big.Rat) {
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
			t.raised[j] = new(big.Rat).Sub(level, loads[j])
			loads[j] = level
		}
		return
	}
}

// fractionsOf returns the fractions of the connections of the problem's i-th node to each of its endpoints.
func (p *problem) row(byKey []reference, i int) []float64 {
	row, rest, last := make([]float64, len(p.endpoints)), rat(1), 0
	for k := range byKey {
		if byKey[k].groupOf[i] >= 0 {
			last = k
		}
	}
	for k := range byKey {
		t := &byKey[k]
		g := t.groupOf[i]
		if g < 0 {
			continue
		}
		fraction, weights := rat(0), t.raised
		switch {
		case t.demand[g].Sign() > 0:
			fraction.Quo(t.assigned[g], t.demand[g]).Mul(fraction, rest)
		case t.room[g].Sign() > 0:
			fraction.Set(rest)
		}
		if t.assigned[g].Sign() == 0 {
			weights = t.free
		}
		if k == last {
			fraction.Set(rest)
		}
		rest = new(big.Rat).Sub(rest, fraction)
		sum := rat(0)
		for _, j := range t.members[g] {
			sum.Add(sum, weights[j])
		}
		for _, j := range t.members[g] {
			part := new(big.Rat)
			if sum.Sign() > 0 {
				part.Quo(weights[j], sum)
			} else {
				part.SetFrac64(1, int64(len(t.members[g])))
			}
			value, _ := part.Mul(part, fraction).Float64()
			row[j] += value
		}
	}
	return row
}

// TestSharesEqualExactFractions compares each node's shares with exact fractions.
func TestSharesEqualExactFractions(t *testing.T) {
	without := 0
	check := func(w *world, _ *rand.Rand) {
		if len(w.endpoints) > 20 {
			w.endpoints = w.endpoints[:20]
		}
		without += w.compare(t)
	}
	randomWorlds(t, 100, false, check)
	randomWorlds(t, 200, true, check)
	if without < 100 {
		t.Errorf("only %d nodes are without demand, want at least 100", without)
	}
}

// compareWithReference compares each node's shares with the fractions, and returns the number of nodes without demand.
func (w *world) compare(t *testing.T) (without int) {
	t.Helper()
	rows, found := w.rows(), w.problems()
	for at := range found {
		p := &found[at]
		references := w.references(p)
		for i, name := range p.nodes {
			if p.demand[i] == 0 {
				without++
			}
			want, got := p.row(references, i), rows[name]
			for j, endpoint := range p.endpoints {
				if part := float64(got.Fractions[endpoint]) / balance.One; math.Abs(part-want[j]) > 1e-6 {
					t.Errorf("%s sends %f to %v, want %f", name, part, w.endpoints[endpoint].Addr, want[j])
				}
			}
		}
	}
	return without
}
