package balance_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// The number of random scenarios of each kind.
const (
	numConsistent   = 1000
	numInconsistent = 1000
	// Scenarios with measured demand.
	numMeasured = 600
)

// outcome is the result for all nodes of a problem together.
type outcome struct {
	sums    []float64 // the fraction of the demand that is placed up to each key
	loads   []float64 // of the problem's endpoints, relative to the mean
	busiest float64   // relative to the mean
}

func (s *scenario) outcome(p *problem, weightOf func(row, int) float64, rows map[string]row) outcome {
	o := outcome{sums: make([]float64, len(s.keys)), loads: make([]float64, len(p.endpoints))}
	for index, name := range p.nodes {
		all := 0.0
		for i := range s.endpoints {
			all += weightOf(rows[name], i)
		}
		for j, i := range p.endpoints {
			amount := float64(p.demand[index]) / float64(p.total) * weightOf(rows[name], i) / all
			o.loads[j] += amount * float64(len(p.endpoints))
			if key := p.firstKeys[index][j]; key >= 0 {
				o.sums[key] += amount
			}
		}
	}
	for k := 1; k < len(o.sums); k++ {
		o.sums[k] += o.sums[k-1]
	}
	o.busiest = slices.Max(o.loads)
	return o
}

func fractionAt(r row, i int) float64 { return float64(r.Fractions[i]) }
func slotsAt(r row, i int) float64    { return float64(r.slots[i]) }

// TestSharesAreOptimal: if groups are nested, as much as possible is placed up to each key. Among all plans that
// achieve this, the load of the busiest endpoint is the smallest.
func TestSharesAreOptimal(t *testing.T) {
	problems, crossing, multi := 0, 0, 0
	var gaps []float64
	check := func(s *scenario, _ *rand.Rand) {
		rows := s.rows()
		checkRows(t, s, rows)
		found := s.problems()
		if len(found) > 1 {
			multi++
		}
		for i := range found {
			problems++
			if !found[i].nested {
				crossing++
			}
			checkLoads(t, s, &found[i], rows)
			if gap := checkOptimum(t, s, &found[i], rows); gap > 0 {
				gaps = append(gaps, gap)
			}
		}
	}
	randomScenarios(t, numConsistent, false, check)
	randomScenarios(t, numInconsistent, true, check)
	measuredScenarios(t, numMeasured, check)
	t.Logf("%d problems, %d of them with crossing groups; %d scenarios with several problems", problems, crossing, multi)
	logSorted(t, "shortfall of the demand placed up to a key if groups cross", gaps)
	if crossing < 100 || problems-crossing < 500 || multi < 100 {
		t.Error("want at least 100 problems with crossing groups, 500 without, and 100 scenarios with several problems")
	}
}

// checkLoads checks Plan.Loads: for each endpoint the load from all nodes together, and the load if all connections
// went to the first key that has endpoints.
func checkLoads(t *testing.T, s *scenario, p *problem, rows map[string]row) {
	t.Helper()
	bounded, unbounded := s.outcome(p, fractionAt, rows).loads, make([]float64, len(p.endpoints))
	for index := range p.nodes {
		nearest, count := len(s.keys), 0
		for _, key := range p.firstKeys[index] {
			switch {
			case key >= 0 && key < nearest:
				nearest, count = key, 1
			case key == nearest:
				count++
			}
		}
		for j, key := range p.firstKeys[index] {
			if key == nearest {
				unbounded[j] += float64(p.demand[index]) / float64(p.total) * float64(len(p.endpoints)) / float64(count)
			}
		}
	}
	loads := s.plan("").Loads()
	for j, i := range p.endpoints {
		if math.Abs(float64(loads[i].Bounded)-1000*bounded[j]) > 0.51 || math.Abs(float64(loads[i].Unbounded)-1000*unbounded[j]) > 0.51 {
			t.Errorf("endpoint %d has load %+v per mille, want %f with the bound and %f without", i, loads[i], 1000*bounded[j],
				1000*unbounded[j])
		}
	}
}

// checkOptimum compares a plan with the optimum. If groups cross and the keys end with `*`, it returns the largest
// shortfall of the demand that is placed up to a key, because the plan need not be optimal then.
func checkOptimum(t *testing.T, s *scenario, p *problem, rows map[string]row) (gap float64) {
	t.Helper()
	const tolerance = 1e-6
	n := int64(len(p.endpoints))
	got, maxPlaced := s.outcome(p, fractionAt, rows), p.maxPlaced(len(s.keys), 100*n, int64(s.limit)*p.total)
	optimum := func(k int) float64 { return float64(maxPlaced[k]) / float64(100*n*p.total) }
	limit := float64(s.limit) / 100
	for name := range rows {
		if slices.Contains(p.nodes, name) && math.Abs(float64(rows[name].Busiest)-got.busiest*1000) > 0.51 {
			t.Errorf("%s expects %d per mille of the mean load for the busiest endpoint; its actual load is %f times the mean", name,
				rows[name].Busiest, got.busiest)
		}
	}
	overloaded := slices.ContainsFunc(p.nodes, func(name string) bool { return rows[name].Outcome == balance.LoadBoundExceeded })
	if p.nested && overloaded || overloaded && got.busiest <= limit {
		t.Errorf("outcome LoadBoundExceeded with limit %f, nested: %t, busiest %f", limit, p.nested, got.busiest)
	}
	if !overloaded && got.busiest > limit+tolerance {
		t.Errorf("the busiest endpoint has %f times the mean load, but no outcome is LoadBoundExceeded", got.busiest)
	}
	if overloaded && s.keys[len(s.keys)-1] == policy.AnyNode {
		t.Error("outcome LoadBoundExceeded although the keys end with *")
	}
	if !p.nested {
		// Demand beyond the bound may already be placed at the first key.
		if got.sums[0] < optimum(0)-tolerance || !overloaded && got.sums[0] > optimum(0)+tolerance {
			t.Errorf("a fraction of %f is placed at the first key, want %f", got.sums[0], optimum(0))
		}
		for k := range s.keys {
			if s.keys[len(s.keys)-1] == policy.AnyNode && optimum(k)-got.sums[k] > tolerance {
				gap = max(gap, optimum(k)-got.sums[k])
			}
		}
		return gap
	}
	for k := range s.keys {
		if math.Abs(got.sums[k]-optimum(k)) > tolerance {
			t.Errorf("a fraction of %f is placed up to key %d, want %f", got.sums[k], k, optimum(k))
		}
	}
	checkLeastBusy(t, s, p, got, maxPlaced)
	return 0
}

// checkLeastBusy checks that not as much can be placed if every endpoint accepts less than the load of the busiest one.
func checkLeastBusy(t *testing.T, s *scenario, p *problem, got outcome, maxPlaced []int64) {
	t.Helper()
	const finer = 1 << 22
	n := int64(len(p.endpoints))
	if got.busiest < 1-1e-6 {
		t.Errorf("the busiest endpoint has %f times the mean load, less than 1", got.busiest)
	}
	less := int64((got.busiest - 2e-6) * 100 * float64(p.total) * finer)
	for k, sum := range p.maxPlaced(len(s.keys), 100*n*finer, less) {
		if sum < maxPlaced[k]*finer {
			return
		}
	}
	t.Errorf("the busiest endpoint has %f times the mean load, but less is possible", got.busiest)
}

// checkRows checks that each node uses only usable endpoints that its keys match, and never those of both phases.
func checkRows(t *testing.T, s *scenario, rows map[string]row) {
	t.Helper()
	for name, row := range rows {
		phase := ""
		for i := range s.endpoints {
			if e := &s.endpoints[i]; s.firstKey(name, e) >= 0 && (e.Ready || phase == "" && e.Serving && e.Terminating) {
				phase = map[bool]string{true: "ready", false: "terminating"}[e.Ready]
			}
		}
		fractionSum, slots := uint64(0), 0
		for i := range s.endpoints {
			e := &s.endpoints[i]
			key := s.firstKey(name, e)
			isUsable := key >= 0 && (phase == "ready" && e.Ready || phase == "terminating" && !e.Ready && e.Serving && e.Terminating)
			if !isUsable && row.Fractions[i]+uint64(row.slots[i]) > 0 {
				t.Errorf("%s sends %d to %v, which is %+v", name, row.Fractions[i], e.Addr, e.Endpoint)
			}
			if row.slots[i] > 0 && row.Fractions[i] == 0 || row.slots[i] < 0 {
				t.Errorf("%s has %d slots for an endpoint with fraction 0", name, row.slots[i])
			}
			fractionSum += row.Fractions[i]
			slots += row.slots[i]
		}
		if (phase != "") != (slots > 0) || (phase != "") != (row.Outcome != balance.NoEndpoint) {
			t.Errorf("%s has %d slots and outcome %d, with %s endpoints", name, slots, row.Outcome, phase)
		}
		if phase != "" && (fractionSum > balance.One || fractionSum < balance.One-uint64(len(s.endpoints)*len(s.keys))) {
			t.Errorf("the fractions of %s add up to %d of %d", name, fractionSum, uint64(balance.One))
		}
		if phase != "" && (row.Rank == 0) != (phase == "ready") {
			t.Errorf("%s has rank %d, but uses %s endpoints", name, row.Rank, phase)
		}
	}
}

// TestSlotsKeepTheBound: with slots, the busiest endpoint has at most 1.03 times its load in the plan, and the demand
// that is placed up to each key differs by at most 1 % of the total. If groups are nested, the plan is optimal
// (TestSharesAreOptimal).
func TestSlotsKeepTheBound(t *testing.T) {
	var excesses, deviations []float64
	byNodes := map[int][]float64{}
	check := func(s *scenario, _ *rand.Rand) {
		rows := s.rows()
		found := s.problems()
		for i := range found {
			p := &found[i]
			shares, slots := s.outcome(p, fractionAt, rows), s.outcome(p, slotsAt, rows)
			excess := slots.busiest/shares.busiest - 1
			excesses = append(excesses, excess)
			size := 10 * (len(p.nodes) / 10)
			byNodes[size] = append(byNodes[size], excess)
			worst := 0.0
			for k := range s.keys {
				worst = max(worst, math.Abs(slots.sums[k]-shares.sums[k]))
			}
			deviations = append(deviations, worst)
			if excess > 0.03 || worst > 0.01 {
				t.Errorf("with slots the busiest of %d endpoints is %.3f %% above the plan, and the demand up to a key differs by %.3f %%; demand %v",
					len(p.endpoints), 100*excess, 100*worst, p.demand)
			}
		}
	}
	randomScenarios(t, numConsistent, false, check)
	randomScenarios(t, numInconsistent, true, check)
	measuredScenarios(t, numMeasured, check)
	logSorted(t, "busiest endpoint above the plan", excesses)
	logSorted(t, "difference of partial sums from the plan", deviations)
	for size := 0; size <= 60; size += 10 {
		if len(byNodes[size]) > 0 {
			logSorted(t, "busiest endpoint, number of nodes from "+string(rune('0'+size/10))+"0", byNodes[size])
		}
	}
}

// TestSlotsOfLargeClusters is the same for 100 to 600 nodes, in three zones of which one always spills.
func TestSlotsOfLargeClusters(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 100))
	var excesses, deviations, lengths []float64
	for i := range 24 {
		s := largeCluster(100+random.IntN(500), 30, 0, policy.Hostname, rack, policy.Zone, policy.AnyNode)
		s.keys, s.limit = s.keys[i%3:], []int{100, 110, 120, 150}[i%4]
		for range 2 + random.IntN(80) {
			zone := []int{0, 0, 0, 0, 0, 1, 1, 1, 2, 2}[random.IntN(10)]
			s.addEndpoint(nodeIn(zone, random.IntN(33)))
		}
		rows, found := s.rows(), s.problems()
		shares, slots := s.outcome(&found[0], fractionAt, rows), s.outcome(&found[0], slotsAt, rows)
		excesses = append(excesses, slots.busiest/shares.busiest-1)
		worst := 0.0
		for k := range s.keys {
			worst = max(worst, math.Abs(slots.sums[k]-shares.sums[k]))
		}
		deviations = append(deviations, worst)
		for _, row := range rows {
			sum := 0
			for _, count := range row.slots {
				sum += count
			}
			lengths = append(lengths, float64(sum)/float64(len(s.endpoints)))
		}
	}
	logSorted(t, "busiest endpoint above the plan", excesses)
	logSorted(t, "difference of partial sums from the plan", deviations)
	logSorted(t, "slots per endpoint", lengths)
	if excesses[len(excesses)-1] > 0.03 || deviations[len(deviations)-1] > 0.004 {
		t.Error("rounding errors exceed 3 % of the busiest endpoint's load, or 0.4 % of the demand up to a key")
	}
}

func logSorted(t *testing.T, title string, values []float64) {
	t.Helper()
	slices.Sort(values)
	percentile := func(percent int) float64 { return values[(len(values)-1)*percent/100] * 100 }
	t.Logf("%s: median %.2f %%, p90 %.2f %%, p99 %.2f %%, max %.2f %% (%d)", title, percentile(50), percentile(90), percentile(99),
		percentile(100), len(values))
}
