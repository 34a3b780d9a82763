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
	check := func(w *world, random *rand.Rand) {
		names := w.names()
		self := names[random.IntN(len(names))]
		want := text(w, w.plan(self))
		shuffled := *w
		shuffled.endpoints = slices.Clone(w.endpoints)
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		random.Shuffle(len(w.endpoints), func(i, j int) {
			shuffled.endpoints[i], shuffled.endpoints[j] = shuffled.endpoints[j], shuffled.endpoints[i]
		})
		classes := balance.NewNodeClasses(w.classKeys(), self)
		for _, name := range names {
			classes.Set(name, w.nodes[name])
		}
		endpointClasses := balance.NewEndpointClasses(w.keys, shuffled.endpoints, w.valueOf)
		if got := text(&shuffled, balance.NewPlan(w.demand(classes), endpointClasses, w.limit)); got != want {
			t.Errorf("in another order: shares\n%s\nwant\n%s", got, want)
		}
	}
	randomWorlds(t, 250, true, check)
	measuredWorlds(t, 250, check)
}

// TestPlansCanBeReused: a plan that is computed again equals a new one.
func TestPlansCanBeReused(t *testing.T) {
	var plan balance.Plan
	randomWorlds(t, 150, true, func(w *world, _ *rand.Rand) {
		plan.Compute(w.demand(w.nodeClasses("")), balance.NewEndpointClasses(w.keys, w.endpoints, w.valueOf), w.limit)
		if got, want := text(w, &plan), text(w, w.plan("")); got != want {
			t.Errorf("computed again: shares\n%s\nwant\n%s", got, want)
		}
	})
}

// formatShares formats the exact shares of all nodes.
func text(w *world, plan *balance.Plan) string {
	order := make([]int, len(w.endpoints))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return w.endpoints[a].Addr.Compare(w.endpoints[b].Addr) })
	var all strings.Builder
	for _, name := range w.names() {
		share := plan.Share(name, w.nodes[name])
		slots := share.Slots(service, balance.Hashes(w.endpoints))
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
		w := randomWorld(random, true)
		if i%2 == 1 {
			w.measure(random)
		}
		names := w.names()
		self := names[random.IntN(len(names))]
		classes, now := balance.NewNodeClasses(w.classKeys(), self), map[string]map[string]string{}
		for range 4 * len(names) {
			name := names[random.IntN(len(names))]
			old, exists := now[name]
			if random.IntN(3) == 0 {
				if classes.Remove(name) != exists {
					t.Fatalf("Remove(%s) did not return %t", name, exists)
				}
				delete(now, name)
				continue
			}
			labels := w.nodes[names[random.IntN(len(names))]]
			if changed := classes.Set(name, labels); !changed && (!exists || seen(w, old) != seen(w, labels)) ||
				changed && exists && seen(w, old) == seen(w, labels) {
				t.Fatalf("Set of %s from %v (exists: %t) to %v returned %t", name, old, exists, labels, changed)
			}
			now[name] = labels
		}
		w.nodes = now
		if classes.Len() != len(now) {
			t.Fatalf("Len is %d, want %d", classes.Len(), len(now))
		}
		plan := balance.NewPlan(w.demand(classes), balance.NewEndpointClasses(w.keys, w.endpoints, w.valueOf), w.limit)
		if got, want := text(w, plan), text(w, w.plan(self)); got != want {
			t.Fatalf("after the history: shares\n%s\nwant\n%s\nin %v", got, want, w)
		}
	}
}

// formatClassLabels formats the labels that node classes depend on.
func seen(w *world, labels map[string]string) string {
	demand, _ := policy.DemandOf(labels)
	all := fmt.Sprint(demand)
	for _, key := range w.classKeys() {
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
	for _, shape7 := range shapes {
		w := shape(shape7.nodes, shape7.endpoints, policy.Hostname, policy.Zone, policy.AnyNode)
		_, _ = io.WriteString(hash, text(w, w.plan("")))
	}
	if got := hash.Sum64(); got != 0xc4780f47db446188 {
		t.Errorf("the hash of all shares changed to %#x", got)
	}
}

// TestASmallChangeMovesLittle counts the slots that a node writes, and the traffic that moves in the plan, when an
// endpoint or a node is added or removed.
func TestASmallChangeMovesLittle(t *testing.T) {
	for _, size := range []struct {
		nodes, endpoints, worlds int
		// The maximum of the mean number of slots that a node may write, and of the fraction of all traffic that may move.
		byEndpoint, byNode, movedByEndpoint, movedByNode float64
	}{
		{9, 10, 40, 100, 70, 0.15, 0.06},
		{60, 20, 10, 8, 3, 0.07, 0.01},
		{300, 60, 2, 3, 0.6, 0.03, 0.002},
	} {
		random := rand.New(rand.NewPCG(7, uint64(size.nodes)))
		sum, moved, unchanged, rows := map[string]float64{}, map[string]float64{}, 0, 0
		most := map[string]int{}
		for range size.worlds {
			w := shape([]int{size.nodes / 3, size.nodes / 3, size.nodes / 3}, []int{0, 0, 0}, policy.Zone, policy.AnyNode)
			names := w.names()
			for range size.endpoints + 1 {
				zone := []int{0, 0, 0, 0, 0, 1, 1, 1, 2, 2}[random.IntN(10)]
				w.addEndpoint(nodeIn(zone, random.IntN(size.nodes/3)))
			}
			fewer := *w
			fewer.endpoints = w.endpoints[:size.endpoints]
			less := fewer
			less.nodes = maps.Clone(w.nodes)
			removed := names[random.IntN(len(names))]
			delete(less.nodes, removed)
			all := map[string]map[string]row{"initial": w.rows(), "endpoint removed": fewer.rows(), "both removed": less.rows()}
			for _, event := range []struct{ what, from, to string }{
				{"endpoint added", "endpoint removed", "initial"}, {"endpoint removed", "initial", "endpoint removed"},
				{"node added", "both removed", "endpoint removed"}, {"node removed", "endpoint removed", "both removed"},
			} {
				for name := range less.nodes {
					count := rewrittenSlots(all[event.from][name].slots, all[event.to][name].slots)
					sum[event.what] += float64(count) / float64(len(less.nodes)*size.worlds)
					most[event.what] = max(most[event.what], count)
					moved[event.what] += movedFraction(all[event.from][name], all[event.to][name]) / float64(len(less.nodes)*size.worlds)
					if event.what == "node added" {
						rows++
						unchanged += map[bool]int{true: 1}[count == 0]
					}
				}
			}
		}
		t.Logf("%d nodes, %d endpoints: %d %% of the nodes write nothing when a node is added", size.nodes, size.endpoints, 100*unchanged/rows)
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
	more, fewer := 0, 0
	for i := range max(len(before), len(after)) {
		old, now := 0, 0
		if i < len(before) {
			old = before[i]
		}
		if i < len(after) {
			now = after[i]
		}
		more += max(0, now-old)
		fewer += max(0, old-now)
	}
	return max(more, fewer)
}

// movedFraction returns the fraction of a node's connections that moves to another endpoint.
func movedFraction(before, after row) float64 {
	sum := 0.0
	for i := range max(len(before.Fractions), len(after.Fractions)) {
		old, now := 0., 0.
		if i < len(before.Fractions) {
			old = float64(before.Fractions[i])
		}
		if i < len(after.Fractions) {
			now = float64(after.Fractions[i])
		}
		sum += math.Abs(now-old) / 2 / balance.One
	}
	return sum
}

// TestSimilarNodesCancelRoundingErrors: the nodes' thresholds are evenly spaced, so the rounding error of their
// sum is not larger than that of one node.
func TestSimilarNodesCancelRoundingErrors(t *testing.T) {
	w := shape([]int{40, 10}, []int{30, 1}, policy.Zone, policy.AnyNode)
	rows := w.rows()
	for i := range w.endpoints {
		sum, wanted := 0, 0.0
		for n := range 10 {
			row := rows[nodeIn(1, n)]
			sum += row.slots[i]
			wanted += float64(row.Fractions[i]) / float64(row.Fractions[30]) * float64(row.slots[30])
		}
		if math.Abs(float64(sum)-wanted) > 1 {
			t.Errorf("endpoint %d has %d slots on ten nodes, want %f", i, sum, wanted)
		}
	}
}

// TestRoundingErrorsCauseNoSpillover: if all endpoints are at the limit, rounding errors neither spill over nor affect
// shares.
func TestRoundingErrorsCauseNoSpillover(t *testing.T) {
	for nodes := 1; nodes < 12; nodes++ {
		for endpoints := 1; endpoints < 12; endpoints++ {
			w := shape([]int{5, nodes, 1}, []int{endpoints, 1, 0}, policy.Hostname, policy.Zone, policy.Region, policy.AnyNode)
			w.limit = 100
			for i, demand := range []string{"1", "2", "3", "5", "7"} {
				withDemand(w, nodeIn(0, i), demand)
			}
			for name, labels := range w.nodes {
				labels[string(policy.Region)] = map[bool]string{true: "there", false: "here"}[name[0] == 'c']
			}
			withDemand(w, "c-000", "0")
			rows := w.rows()
			for _, part := range rows["c-000"].Fractions {
				if math.Abs(float64(part)/balance.One*float64(len(w.endpoints))-1) > 1e-9 {
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
	w := world{keys: keys}
	for i := range endpoints {
		w.addEndpoint(names[i*2/3]) // on a sixth of the nodes: three endpoints for every two of them
		w.endpoints[i].Zone = fmt.Sprint("z", i*2/3%64)
	}
	endpointClasses := balance.NewEndpointClasses(keys, w.endpoints, func(e *model.PortEndpoint, key policy.Key) (string, bool) {
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
	measured, _ := classes.Measured(zones)
	demands := map[string]balance.Demand{"labels": classes.ByLabels(), "clients": classes.Named(clients), "measured": measured}
	for name, demand := range demands {
		// Every second zone has half as many endpoints as the others.
		for limit, busiest := range map[int]uint64{100: 1000, 1000: 1501} {
			plan := balance.NewPlan(demand, endpointClasses, limit)
			for _, node := range []int{0, 1, 2, nodes - 1} {
				share := plan.Share(names[node], labels[node%64])
				sum := uint64(0)
				for _, part := range share.Fractions {
					sum += part
				}
				if sum > balance.One || sum < balance.One-4*endpoints || share.Busiest != busiest {
					t.Errorf("%s with limit %d: the fractions of node %d add up to %d, and the busiest endpoint has %d per mille of the mean load", name, limit, node, sum, share.Busiest)
				}
				// A node's demand is 1/2^18 of the total, and an endpoint accepts four times as much.
				if hosted := share.KeyResults[0]; hosted.Endpoints > 0 && hosted.Fraction != balance.One {
					t.Errorf("%s with limit %d: the fraction of node %d for its own endpoints is %d, although they can accept all", name, limit, node, hosted.Fraction)
				}
				if share.Demand != nodes*map[string]uint64{"labels": 100, "clients": balance.MaxDemand, "measured": 1 << 30 / nodes}[name] {
					t.Errorf("%s: demand is %d", name, share.Demand)
				}
				for i, slots := range share.Slots(service, balance.Hashes(w.endpoints)) {
					if slots < 0 || slots > 5000 {
						t.Fatalf("endpoint %d has %d slots", i, slots)
					}
				}
			}
		}
	}
}
