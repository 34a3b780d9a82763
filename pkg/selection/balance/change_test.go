package balance_test

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// TestOrderOfTheInputDoesNotMatter: nodes and endpoints in another order give the same result, bit for bit.
func TestOrderOfTheInputDoesNotMatter(t *testing.T) {
	check := func(s *scenario, random *rand.Rand) {
		names := s.names()
		self := names[random.IntN(len(names))]
		want := formatShares(s, s.plan(self))
		shuffled := *s
		shuffled.endpoints = slices.Clone(s.endpoints)
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		random.Shuffle(len(s.endpoints), func(i, j int) {
			shuffled.endpoints[i], shuffled.endpoints[j] = shuffled.endpoints[j], shuffled.endpoints[i]
		})
		classes := balance.NewNodeClasses(s.classKeys(), self)
		for _, name := range names {
			classes.Set(name, s.nodes[name])
		}
		endpointClasses := balance.NewEndpointClasses(s.keys, shuffled.endpoints, s.valueOf)
		if got := formatShares(&shuffled, balance.NewPlan(s.demand(classes), endpointClasses, s.limit)); got != want {
			t.Errorf("in another order: shares\n%s\nwant\n%s", got, want)
		}
	}
	randomScenarios(t, 250, true, check)
	measuredScenarios(t, 250, check)
}

// TestPlansCanBeReused: a plan that is computed again equals a new one.
func TestPlansCanBeReused(t *testing.T) {
	var plan balance.Plan
	randomScenarios(t, 150, true, func(s *scenario, _ *rand.Rand) {
		plan.Compute(s.demand(s.nodeClasses("")), balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf), s.limit)
		if got, want := formatShares(s, &plan), formatShares(s, s.plan("")); got != want {
			t.Errorf("computed again: shares\n%s\nwant\n%s", got, want)
		}
	})
}

// formatShares formats the exact shares of all nodes.
func formatShares(s *scenario, plan *balance.Plan) string {
	order := make([]int, len(s.endpoints))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return s.endpoints[a].Addr.Compare(s.endpoints[b].Addr) })
	var all strings.Builder
	for _, name := range s.names() {
		share := plan.Share(name, s.nodes[name])
		slots := share.Slots(service, balance.Hashes(s.endpoints))
		fmt.Fprint(&all, name, share.Outcome, share.Near, share.Next, share.Busiest, share.KeyResults)
		for _, i := range order {
			fmt.Fprint(&all, " ", share.Fractions[i], "/", slots[i])
		}
		all.WriteString("\n")
	}
	return all.String()
}

// TestNodeClassesDoNotDependOnHistory: after any history, node classes equal new ones, whichever node is self.
func TestNodeClassesDoNotDependOnHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	for i := range 300 {
		s := randomScenario(random, true)
		if i%2 == 1 {
			s.measure(random)
		}
		names := s.names()
		self := names[random.IntN(len(names))]
		classes, current := balance.NewNodeClasses(s.classKeys(), self), map[string]map[string]string{}
		for range 4 * len(names) {
			name := names[random.IntN(len(names))]
			old, exists := current[name]
			if random.IntN(3) == 0 {
				if classes.Remove(name) != exists {
					t.Fatalf("Remove(%s) did not return %t", name, exists)
				}
				delete(current, name)
				continue
			}
			labels := s.nodes[names[random.IntN(len(names))]]
			if changed := classes.Set(name, labels); !changed && (!exists || formatClassLabels(s, old) != formatClassLabels(s, labels)) ||
				changed && exists && formatClassLabels(s, old) == formatClassLabels(s, labels) {
				t.Fatalf("Set of %s from %v (exists: %t) to %v returned %t", name, old, exists, labels, changed)
			}
			current[name] = labels
		}
		s.nodes = current
		if classes.Len() != len(current) {
			t.Fatalf("Len is %d, want %d", classes.Len(), len(current))
		}
		plan := balance.NewPlan(s.demand(classes), balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf), s.limit)
		if got, want := formatShares(s, plan), formatShares(s, s.plan(self)); got != want {
			t.Fatalf("after the history: shares\n%s\nwant\n%s\nin %v", got, want, s)
		}
	}
}

// formatClassLabels formats the labels that node classes depend on.
func formatClassLabels(s *scenario, labels map[string]string) string {
	demand, _ := policy.DemandOf(labels)
	all := fmt.Sprint(demand)
	for _, key := range s.classKeys() {
		if value, ok := labels[string(key)]; ok && key != policy.Hostname {
			all += fmt.Sprintf(" %s=%q", key, value)
		}
	}
	return all
}

// TestSharesAreTheSameOnAllPlatforms: shares are the same on every processor, and after an upgrade. If the hash changes
// on purpose, every node of every cluster rewrites its tables when it gets the new version.
func TestSharesAreTheSameOnAllPlatforms(t *testing.T) {
	hash := fnv.New64a()
	for _, example := range shapes {
		s := shape(example.nodes, example.endpoints, policy.Hostname, policy.Zone, policy.AnyNode)
		_, _ = io.WriteString(hash, formatShares(s, s.plan("")))
	}
	if got := hash.Sum64(); got != 0xc4780f47db446188 {
		t.Errorf("the hash of all shares changed to %#x", got)
	}
}

// TestASmallChangeMovesLittle counts the slots that a node writes, and the traffic that moves in the plan, when an
// endpoint or a node is added or removed.
func TestASmallChangeMovesLittle(t *testing.T) {
	for _, size := range []struct {
		nodes, endpoints, scenarios int
		// The maximum of the mean number of slots that a node may write, and of the fraction of all traffic that may move.
		byEndpoint, byNode, movedByEndpoint, movedByNode float64
	}{
		{9, 10, 40, 100, 70, 0.15, 0.06},
		{60, 20, 10, 8, 3, 0.07, 0.01},
		{300, 60, 2, 3, 0.6, 0.03, 0.002},
	} {
		random := rand.New(rand.NewPCG(7, uint64(size.nodes)))
		sum, moved, unchanged, comparisons := map[string]float64{}, map[string]float64{}, 0, 0
		most := map[string]int{}
		for range size.scenarios {
			s := shape([]int{size.nodes / 3, size.nodes / 3, size.nodes / 3}, []int{0, 0, 0}, policy.Zone, policy.AnyNode)
			names := s.names()
			for range size.endpoints + 1 {
				zone := []int{0, 0, 0, 0, 0, 1, 1, 1, 2, 2}[random.IntN(10)]
				s.addEndpoint(nodeIn(zone, random.IntN(size.nodes/3)))
			}
			withoutEndpoint := *s
			withoutEndpoint.endpoints = s.endpoints[:size.endpoints]
			withoutBoth := withoutEndpoint
			withoutBoth.nodes = maps.Clone(s.nodes)
			removed := names[random.IntN(len(names))]
			delete(withoutBoth.nodes, removed)
			results := map[string]map[string]row{"initial": s.rows(), "endpoint removed": withoutEndpoint.rows(), "both removed": withoutBoth.rows()}
			for _, event := range []struct{ what, from, to string }{
				{"endpoint added", "endpoint removed", "initial"}, {"endpoint removed", "initial", "endpoint removed"},
				{"node added", "both removed", "endpoint removed"}, {"node removed", "endpoint removed", "both removed"},
			} {
				for name := range withoutBoth.nodes {
					count := rewrittenSlots(results[event.from][name].slots, results[event.to][name].slots)
					sum[event.what] += float64(count) / float64(len(withoutBoth.nodes)*size.scenarios)
					most[event.what] = max(most[event.what], count)
					moved[event.what] += movedFraction(results[event.from][name], results[event.to][name]) / float64(len(withoutBoth.nodes)*size.scenarios)
					if event.what == "node added" {
						comparisons++
						unchanged += map[bool]int{true: 1}[count == 0]
					}
				}
			}
		}
		t.Logf("%d nodes, %d endpoints: %d %% of the nodes write nothing when a node is added", size.nodes, size.endpoints,
			100*unchanged/comparisons)
		for _, what := range slices.Sorted(maps.Keys(sum)) {
			t.Logf("    %-16s writes %5.2f slots on average, %3d at most; moves %.2f %% of the traffic",
				what, sum[what], most[what], 100*moved[what])
		}
		if sum["endpoint added"] > size.byEndpoint || sum["endpoint removed"] > size.byEndpoint || sum["node added"] > size.byNode ||
			sum["node removed"] > size.byNode {
			t.Errorf("%d nodes: too many slots are written", size.nodes)
		}
		if moved["endpoint added"] > size.movedByEndpoint || moved["endpoint removed"] > size.movedByEndpoint ||
			moved["node added"] > size.movedByNode || moved["node removed"] > size.movedByNode {
			t.Errorf("%d nodes: too much traffic moves", size.nodes)
		}
	}
}

// rewrittenSlots returns the minimum number of slots that must be rewritten.
func rewrittenSlots(before, after []int) int {
	added, removed := 0, 0
	for i := range max(len(before), len(after)) {
		old, current := 0, 0
		if i < len(before) {
			old = before[i]
		}
		if i < len(after) {
			current = after[i]
		}
		added += max(0, current-old)
		removed += max(0, old-current)
	}
	return max(added, removed)
}

// movedFraction returns the fraction of a node's connections that moves to another endpoint.
func movedFraction(before, after row) float64 {
	sum := 0.0
	for i := range max(len(before.Fractions), len(after.Fractions)) {
		old, current := 0., 0.
		if i < len(before.Fractions) {
			old = float64(before.Fractions[i])
		}
		if i < len(after.Fractions) {
			current = float64(after.Fractions[i])
		}
		sum += math.Abs(current-old) / 2 / balance.One
	}
	return sum
}

// TestSimilarNodesCancelRoundingErrors: the nodes' thresholds are evenly spaced, so the rounding error of their
// sum is not larger than that of one node.
func TestSimilarNodesCancelRoundingErrors(t *testing.T) {
	s := shape([]int{40, 10}, []int{30, 1}, policy.Zone, policy.AnyNode)
	rows := s.rows()
	for i := range s.endpoints {
		sum, want := 0, 0.0
		for n := range 10 {
			row := rows[nodeIn(1, n)]
			sum += row.slots[i]
			want += float64(row.Fractions[i]) / float64(row.Fractions[30]) * float64(row.slots[30])
		}
		if math.Abs(float64(sum)-want) > 1 {
			t.Errorf("endpoint %d has %d slots on ten nodes, want %f", i, sum, want)
		}
	}
}

// TestRoundingErrorsCauseNoSpillover: if all endpoints are at the limit, rounding errors neither spill over nor affect
// shares.
func TestRoundingErrorsCauseNoSpillover(t *testing.T) {
	for nodes := 1; nodes < 12; nodes++ {
		for endpoints := 1; endpoints < 12; endpoints++ {
			s := shape([]int{5, nodes, 1}, []int{endpoints, 1, 0}, policy.Hostname, policy.Zone, policy.Region, policy.AnyNode)
			s.limit = 100
			for i, demand := range []string{"1", "2", "3", "5", "7"} {
				withDemand(s, nodeIn(0, i), demand)
			}
			for name, labels := range s.nodes {
				labels[string(policy.Region)] = map[bool]string{true: "there", false: "here"}[name[0] == 'c']
			}
			withDemand(s, "c-000", "0")
			rows := s.rows()
			for _, fraction := range rows["c-000"].Fractions {
				if math.Abs(float64(fraction)/balance.One*float64(len(s.endpoints))-1) > 1e-9 {
					t.Errorf("%d nodes, %d endpoints: a node without demand has fractions %v", nodes, endpoints, rows["c-000"].Fractions)
				}
			}
			for name, row := range rows {
				if name != "c-000" && row.KeyResults[3].Fraction > 0 {
					t.Errorf("%d nodes, %d endpoints: %s sends %d to the key *, want 0", nodes, endpoints, name, row.KeyResults[3].Fraction)
				}
			}
		}
	}
}

// TestLargestNumbersDoNotOverflow: the largest possible numbers cause no overflow.
func TestLargestNumbersDoNotOverflow(t *testing.T) {
	const nodes, endpoints = 1 << 18, 65_535
	keys := []policy.Key{policy.Hostname, policy.Zone, policy.Region, policy.AnyNode}
	labels := make([]map[string]string, 64)
	for i := range labels {
		labels[i] = map[string]string{
			string(policy.Zone): fmt.Sprint("z", i), string(policy.Region): fmt.Sprint("r", i/8), policy.DemandLabel: "100",
		}
	}
	classes, clients, names := balance.NewNodeClasses(keys, "n0"), map[string]uint32{}, make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
		classes.Set(names[i], labels[i%64])
		clients[names[i]] = math.MaxUint32
	}
	s := scenario{keys: keys}
	for i := range endpoints {
		s.addEndpoint(names[i*2/3]) // on a sixth of the nodes: three endpoints for every two of them
		s.endpoints[i].Zone = fmt.Sprint("z", i*2/3%64)
	}
	endpointClasses := balance.NewEndpointClasses(keys, s.endpoints, func(e *model.PortEndpoint, key policy.Key) (string, bool) {
		switch key {
		case policy.Hostname:
			return e.Node, true
		case policy.Zone:
			return e.Zone, true
		}
		var zone int
		_, _ = fmt.Sscanf(e.Zone, "z%d", &zone)
		return fmt.Sprint("r", zone/8), true
	})
	zones := map[string]uint32{}
	for i := range labels {
		zones[fmt.Sprint("z", i)] = math.MaxUint32
	}
	measured, _ := classes.Measured(&model.Demand{Zones: zones})
	demands := map[string]balance.Demand{"labels": classes.ByLabels(), "clients": classes.Named(clients), "measured": measured}
	for name, demand := range demands {
		// Every second zone has half as many endpoints as the others.
		for limit, busiest := range map[int]uint64{100: 1000, 1000: 1501} {
			plan := balance.NewPlan(demand, endpointClasses, limit)
			for _, node := range []int{0, 1, 2, nodes - 1} {
				share := plan.Share(names[node], labels[node%64])
				sum := uint64(0)
				for _, fraction := range share.Fractions {
					sum += fraction
				}
				if sum > balance.One || sum < balance.One-4*endpoints || share.Busiest != busiest {
					t.Errorf("%s with limit %d: the fractions of node %d add up to %d, and the busiest endpoint has %d per mille of the mean load",
						name, limit, node, sum, share.Busiest)
				}
				// A node's demand is 1/2^18 of the total, and an endpoint accepts four times as much.
				if hosted := share.KeyResults[0]; hosted.Endpoints > 0 && hosted.Fraction != balance.One {
					t.Errorf("%s with limit %d: the fraction of node %d for its own endpoints is %d, although they can accept all", name, limit, node,
						hosted.Fraction)
				}
				if share.Demand != nodes*map[string]uint64{"labels": 100, "clients": balance.MaxDemand, "measured": 1 << 30 / nodes}[name] {
					t.Errorf("%s: demand is %d", name, share.Demand)
				}
				for i, slots := range share.Slots(service, balance.Hashes(s.endpoints)) {
					if slots < 0 || slots > 5000 {
						t.Fatalf("endpoint %d has %d slots", i, slots)
					}
				}
			}
		}
	}
}
