package balance_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// TestWhatIsKeptWithoutAPlanIsKeptByOne: nodes are added, removed and change their demand. If StillHolds returns true,
// the slots are the same as before.
func TestWhatIsKeptWithoutAPlanIsKeptByOne(t *testing.T) {
	held, refused := 0, 0
	check := func(w *world, random *rand.Rand) {
		names := w.names()
		self := names[random.IntN(len(names))]
		cells := w.cells(self)
		endpointClasses := balance.NewEndpointClasses(w.keys, w.endpoints, w.valueOf)
		share := balance.NewPlan(w.demand(cells), endpointClasses, w.limit).Share(self, w.nodes[self])
		kept, row := share.NearProof(), share.Slots(service, balance.Hashes(w.endpoints))
		hosts := map[string]bool{self: true}
		for _, endpoint := range w.endpoints {
			hosts[endpoint.Node] = true
		}
		for range 4 {
			for n := range 1 + random.IntN(3) {
				labels := maps.Clone(w.nodes[names[random.IntN(len(names))]])
				labels[policy.DemandLabel] = fmt.Sprint(random.IntN(6))
				cells.Set(fmt.Sprintf("new-%d", n), labels)
			}
			if gone := names[random.IntN(len(names))]; !hosts[gone] {
				cells.Remove(gone)
			}
			demand := w.demand(cells)
			now := balance.NewPlan(demand, endpointClasses, w.limit).Share(self, w.nodes[self])
			switch same := slices.Equal(now.Slots(service, balance.Hashes(w.endpoints)), row); {
			case !kept.StillHolds(demand, uint64(w.limit)):
				refused++
			case !same || now.Outcome != balance.WithinLoadBound:
				t.Errorf("StillHolds is true for %s with %+v, but the outcome is %d, and the slots are the same: %t", self, kept, now.Outcome, same)
			default:
				held++
			}
		}
	}
	randomWorlds(t, tameWorlds, false, check)
	randomWorlds(t, wildWorlds, true, check)
	t.Logf("the proof holds %d times, a plan is needed %d times", held, refused)
	if held < 300 || refused < 1000 {
		t.Error("too few random worlds of either kind")
	}
}
