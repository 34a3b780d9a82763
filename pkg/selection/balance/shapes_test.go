package balance_test

import (
	"math"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// shapes are example clusters, with the share that stays in the zone and the load of the busiest endpoint at 120 %.
var shapes = []struct {
	name             string
	nodes, endpoints []int
	near, busiest    float64
}{
	{"3-3-3", []int{3, 3, 3}, []int{3, 3, 3}, 1, 1},
	{"4-4-3", []int{3, 3, 3}, []int{4, 4, 3}, 2./3 + 1.2*3/11, 1.2},
	{"1-2-0", []int{3, 3, 3}, []int{1, 2, 0}, 2. / 3, 1},
	{"6-1-1", []int{3, 3, 3}, []int{6, 1, 1}, 1./3 + 2*1.2/8, 1.2},
	{"3-2-2", []int{3, 3, 3}, []int{3, 2, 2}, 1, 7. / 6},
	{"200 nodes", []int{80, 60, 30, 20, 10}, []int{40, 30, 16, 10, 4}, 0.95 + 1.2*0.04, 1.2},
	{"40-1-1-1", []int{10, 10, 10, 10}, []int{40, 1, 1, 1}, 0.25 + 3*1.2/43, 1.2},
}

func TestShapes(t *testing.T) {
	for _, example := range shapes {
		s := shape(example.nodes, example.endpoints, policy.Zone, policy.AnyNode)
		rows := s.rows()
		p := s.problems()[0]
		shares, slots := s.outcome(&p, fractionAt, rows), s.outcome(&p, slotsAt, rows)
		t.Logf("%-9s  shares %5.1f %% / %.2f  slots %5.1f %% / %.2f", example.name,
			100*shares.sums[0], shares.busiest, 100*slots.sums[0], slots.busiest)
		for zone := range example.nodes {
			logZones(t, s, rows, nodeIn(zone, 0))
		}
		if math.Abs(shares.sums[0]-example.near) > 1e-9 || math.Abs(shares.busiest-example.busiest) > 1e-9 {
			t.Errorf("%s: in-zone share %f, busiest %f; want %f and %f", example.name, shares.sums[0], shares.busiest, example.near, example.busiest)
		}
		if math.Abs(slots.sums[0]-example.near) > 0.004 || slots.busiest > example.busiest*1.015 {
			t.Errorf("%s in slots: in-zone share %f, busiest %f; want %f and %f", example.name, slots.sums[0], slots.busiest,
				example.near, example.busiest)
		}
	}
}

// logZones logs the percentage of a node's connections that go to each zone.
func logZones(t *testing.T, s *scenario, rows map[string]row, name string) {
	t.Helper()
	percentages, slots, all, counts := map[string]float64{}, map[string]int{}, 0, map[string]int{}
	for i, e := range s.endpoints {
		percentages[e.Zone] += 100 * float64(rows[name].Fractions[i]) / balance.One
		slots[e.Zone] += rows[name].slots[i]
		all += rows[name].slots[i]
		counts[e.Zone]++
	}
	for _, zone := range []string{"a", "b", "c", "d", "e"} {
		if counts[zone] > 0 {
			t.Logf("    %s → zone %s: %5.1f %%, %4d of %4d slots, %2d endpoints", name, zone, percentages[zone], slots[zone], all, counts[zone])
		}
	}
}

// TestDocumentedExample checks the exact numbers of 6-1-1 with three nodes in each zone.
func TestDocumentedExample(t *testing.T) {
	rows := shape([]int{3, 3, 3}, []int{6, 1, 1}, policy.Zone, policy.AnyNode).rows()
	near, far := rows["b-000"].Fractions[6], rows["b-000"].Fractions[0]
	if near != balance.One/20*9 && math.Abs(float64(near)/balance.One-0.45) > 1e-12 || math.Abs(float64(far)/balance.One-0.55/6) > 1e-12 {
		t.Errorf("a node in zone b sends %f to its endpoint and %f to each of the six", float64(near)/balance.One, float64(far)/balance.One)
	}
	got := rows["b-000"].Share
	want := balance.Share{
		Outcome: balance.Spillover, Near: 0, Next: 1, Endpoints: 8, Demand: 9, Busiest: 1200,
		KeyResults: []balance.KeyResult{
			{Key: policy.Zone, Value: "b", IsKnown: true, Fraction: got.KeyResults[0].Fraction, Endpoints: 1, Demand: 3, Unbounded: 2667,
				Busiest: 1200},
			{Key: policy.AnyNode, IsKnown: true, Fraction: balance.One - got.KeyResults[0].Fraction, Endpoints: 8, Demand: 9,
				Unbounded: 1000, Busiest: 1200},
		},
	}
	compareShares(t, got, want)
	got = rows["a-000"].Share
	want.Outcome, want.Next = balance.WithinLoadBound, 0
	want.KeyResults = []balance.KeyResult{
		{Key: policy.Zone, Value: "a", IsKnown: true, Fraction: balance.One, Endpoints: 6, Demand: 3, Unbounded: 444, Busiest: 933},
		{Key: policy.AnyNode, IsKnown: true, Endpoints: 8, Demand: 9, Unbounded: 1000, Busiest: 1200},
	}
	compareShares(t, got, want)
	for i, slots := range rows["a-000"].slots {
		if want := map[bool]int{true: 1}[i < 6]; slots != want {
			t.Errorf("in zone a endpoint %d has %d slots, want %d", i, slots, want)
		}
	}
}

func compareShares(t *testing.T, got, want balance.Share) {
	t.Helper()
	if got.Outcome != want.Outcome || got.Near != want.Near || got.Next != want.Next || got.Rank != want.Rank ||
		got.Endpoints != want.Endpoints || got.Demand != want.Demand || got.Busiest != want.Busiest ||
		!slices.Equal(got.KeyResults, want.KeyResults) {
		got.Fractions, want.Fractions = nil, nil
		t.Errorf("share is\n%+v, want\n%+v", got, want)
	}
}

func TestOutcomes(t *testing.T) {
	host, zone, region, anyNode := policy.Hostname, policy.Zone, policy.Region, policy.AnyNode
	for name, c := range map[string]struct {
		scenario   *scenario
		node       string
		outcome    balance.Outcome
		near, next int
	}{
		"all connections stay":         {shape([]int{2, 2}, []int{2, 2}, zone, anyNode), "a-000", balance.WithinLoadBound, 0, 0},
		"no endpoint in the zone":      {shape([]int{2, 2}, []int{2, 0}, zone, anyNode), "b-000", balance.NoNearEndpoints, 0, 1},
		"no endpoint on the node":      {shape([]int{2, 2}, []int{1, 1}, host, zone, anyNode), "a-001", balance.WithinLoadBound, 1, 1},
		"no near endpoint at two keys": {shape([]int{2, 2}, []int{2, 0}, host, zone, anyNode), "b-001", balance.NoNearEndpoints, 1, 2},
		"spillover": {
			shape([]int{2, 2}, []int{3, 1}, zone, anyNode), "b-000", balance.Spillover, 0, 1,
		},
		"spillover past a key at the limit": {
			withDemand(shape([]int{4, 4}, []int{7, 1}, host, zone, anyNode), "b-000", "2"), "b-000", balance.Spillover, 0, 2,
		},
		"only *":                  {shape([]int{2}, []int{2}, anyNode), "a-000", balance.WithinLoadBound, 0, 0},
		"hard keys, all in zone":  {shape([]int{2, 2}, []int{1, 5}, zone), "a-000", balance.WithinLoadBound, 0, 0},
		"hard keys, none in zone": {shape([]int{2, 2}, []int{1, 0}, zone), "b-000", balance.NoEndpoint, 0, 0},
		"no endpoint":             {shape([]int{2, 2}, []int{0, 0}, zone, anyNode), "b-000", balance.NoEndpoint, 0, 0},
		"an unknown node": {
			shape([]int{2, 2}, []int{3, 1}, zone, anyNode), "unknown", balance.NoNearEndpoints, 0, 1,
		},
		"hard keys that exceed the bound": {
			// Zone a is at the limit, and its other nodes have no region.
			withRegion(shape([]int{4, 4}, []int{1, 3}, zone, region), "a-000", "b-000", "b-001", "b-002", "b-003"),
			"a-001", balance.LoadBoundExceeded, 0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.scenario.plan("").Share(c.node, c.scenario.nodes[c.node])
			if got.Outcome != c.outcome || got.Near != c.near || got.Next != c.next {
				t.Errorf("outcome %d at %d, next %d; want %d at %d, next %d\n%+v", got.Outcome, got.Near, got.Next, c.outcome, c.near, c.next,
					got.KeyResults)
			}
		})
	}
}

func withDemand(s *scenario, name, demand string) *scenario {
	s.nodes[name][policy.DemandLabel] = demand
	return s
}

func withRegion(s *scenario, names ...string) *scenario {
	for _, name := range names {
		s.nodes[name][string(policy.Region)] = "r"
	}
	return s
}

// TestHardKeysIsolateRegions: changes in another region make no difference here.
func TestHardKeysIsolateRegions(t *testing.T) {
	newScenario := func(there int) *scenario {
		s := shape([]int{4, 4, there}, []int{5, 1, there}, policy.Zone, policy.Region)
		for name, labels := range s.nodes {
			labels[string(policy.Region)] = map[bool]string{true: "there", false: "here"}[name[0] == 'c']
		}
		return s
	}
	before, after := newScenario(1).rows(), newScenario(7).rows()
	for name, row := range before {
		if name[0] != 'c' && (!slices.Equal(row.Fractions[:6], after[name].Fractions[:6]) ||
			!slices.Equal(row.slots[:6], after[name].slots[:6])) {
			t.Errorf("%s has slots %v, but %v if the other region has more endpoints", name, row.slots, after[name].slots)
		}
	}
}

// TestDemandByClients: with clients in one zone the bound holds for them, and without any clients each node counts 1.
func TestDemandByClients(t *testing.T) {
	s := shape([]int{3, 3, 3}, []int{4, 4, 3}, policy.Zone, policy.AnyNode)
	s.clients = map[string]uint32{"b-000": 5, "b-001": 5, "b-002": 5}
	p := s.problems()[0]
	if got := s.outcome(&p, fractionAt, s.rows()); math.Abs(got.busiest-1.2) > 1e-9 {
		t.Errorf("with all clients in one zone the busiest endpoint has load %f", got.busiest)
	}
	plain, withoutClients := shape([]int{3, 3, 3}, []int{4, 4, 3}, policy.Zone, policy.AnyNode), *s
	withoutClients.clients = map[string]uint32{"unknown": 3}
	for name, row := range plain.rows() {
		if got := withoutClients.rows()[name]; !slices.Equal(got.slots, row.slots) {
			t.Errorf("%s has slots %v without clients, and %v by labels", name, got.slots, row.slots)
		}
	}
}
