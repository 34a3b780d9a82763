package balance_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// TestFewNodesConnect: only two nodes of a large cluster connect, so their rounding errors do not cancel out. If the
// measurement says so, a node has as many slots as it takes.
func TestFewNodesConnect(t *testing.T) {
	for _, c := range []struct {
		nodes, scenarios int
	}{{1000, 300}, {5000, 60}} {
		t.Run(fmt.Sprintf("%d nodes", c.nodes), func(t *testing.T) {
			random := rand.New(rand.NewPCG(4, uint64(c.nodes)))
			busiest, unknown, slots := make([]float64, c.scenarios), make([]float64, c.scenarios), 0
			for i := range c.scenarios {
				w := fewNodesConnect(random, c.nodes)
				busiest[i], slots = w.busiest(2)
				unknown[i], _ = w.busiest(0)
			}
			slices.Sort(busiest)
			slices.Sort(unknown)
			t.Logf("busiest: median %.2f, 99 %% %.2f, highest %.2f; if the concentration is unknown: 99 %% %.2f, highest %.2f; the last "+
				"scenario has %d slots on a node", busiest[c.scenarios/2], busiest[c.scenarios*99/100], busiest[c.scenarios-1],
				unknown[c.scenarios*99/100], unknown[c.scenarios-1], slots)
			if busiest[c.scenarios*99/100] > 1.30 || unknown[c.scenarios-1] < 1.30 {
				t.Errorf("99 %% of the scenarios have at most %.2f, want 1.30; unknown concentration up to %.2f, want more than 1.30",
					busiest[c.scenarios*99/100], unknown[c.scenarios-1])
			}
		})
	}
}

// concentratedScenario is a cluster in which two nodes connect, each as often as the other.
type concentratedScenario struct {
	classes   *balance.NodeClasses
	connect   [2]string
	zones     map[string]uint32
	labels    map[string]map[string]string
	endpoints []model.PortEndpoint
}

func fewNodesConnect(random *rand.Rand, nodes int) *concentratedScenario {
	keys := []policy.Key{policy.Zone, policy.AnyNode}
	w := &concentratedScenario{classes: balance.NewNodeClasses(keys, ""), zones: map[string]uint32{}, labels: map[string]map[string]string{}}
	zones := 2 + random.IntN(4)
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		w.labels[name] = map[string]string{string(policy.Zone): fmt.Sprintf("z%d", random.IntN(zones))}
		w.classes.Set(name, w.labels[name])
	}
	for i := range 3 + random.IntN(40) {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(random.IntN(256)), byte(random.IntN(256)), byte(i)}), 80)
		w.endpoints = append(w.endpoints, model.PortEndpoint{Addr: addr, Endpoint: model.Endpoint{
			Zone: fmt.Sprintf("z%d", random.IntN(zones)), Ready: true, Serving: true,
		}})
	}
	for i := range w.connect {
		w.connect[i] = fmt.Sprintf("n%d", random.IntN(nodes))
		w.zones[w.labels[w.connect[i]][string(policy.Zone)]]++
	}
	return w
}

// busiest returns the load of the busiest endpoint relative to the mean, and the slots of one node, if the measurement
// has a number of effective nodes.
func (w *concentratedScenario) busiest(effectiveNodes uint64) (load float64, slots int) {
	keys := []policy.Key{policy.Zone, policy.AnyNode}
	demand, _ := w.classes.Measured(&model.Demand{Zones: w.zones, EffectiveNodes: effectiveNodes})
	zoneOf := func(e *model.PortEndpoint, key policy.Key) (string, bool) { return e.Zone, key == policy.Zone }
	plan := balance.NewPlan(demand, balance.NewEndpointClasses(keys, w.endpoints, zoneOf), 120)
	loads := make([]float64, len(w.endpoints))
	for _, name := range w.connect {
		share := plan.Share(name, w.labels[name])
		slots = 0
		perEndpoint := share.Slots(service, balance.Hashes(w.endpoints))
		for _, count := range perEndpoint {
			slots += count
		}
		for i, count := range perEndpoint {
			loads[i] += float64(count) / float64(slots) / 2 * float64(len(loads))
		}
	}
	return slices.Max(loads), slots
}
