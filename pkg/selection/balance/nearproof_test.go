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

// TestStillHoldsAgreesWithPlans: after nodes are added or removed, or change their demand, the slots are the same as
// before if StillHolds returns true.
func TestStillHoldsAgreesWithPlans(t *testing.T) {
	held, notHeld := 0, 0
	check := func(w *world, random *rand.Rand) {
		names := w.names()
		self := names[random.IntN(len(names))]
		classes := w.nodeClasses(self)
		endpointClasses := balance.NewEndpointClasses(w.keys, w.endpoints, w.valueOf)
		share := balance.NewPlan(w.demand(classes), endpointClasses, w.limit).Share(self, w.nodes[self])
		proof, row := share.NearProof(), share.Slots(service, balance.Hashes(w.endpoints))
		hosts := map[string]bool{self: true}
		for _, endpoint := range w.endpoints {
			hosts[endpoint.Node] = true
		}
		for range 4 {
			for n := range 1 + random.IntN(3) {
				labels := maps.Clone(w.nodes[names[random.IntN(len(names))]])
				labels[policy.DemandLabel] = fmt.Sprint(random.IntN(6))
				classes.Set(fmt.Sprintf("new-%d", n), labels)
			}
			if removed := names[random.IntN(len(names))]; !hosts[removed] {
				classes.Remove(removed)
			}
			demand := w.demand(classes)
			now := balance.NewPlan(demand, endpointClasses, w.limit).Share(self, w.nodes[self])
			switch same := slices.Equal(now.Slots(service, balance.Hashes(w.endpoints)), row); {
			case !proof.StillHolds(demand, uint64(w.limit)):
				notHeld++
			case !same || now.Outcome != balance.WithinLoadBound:
				t.Errorf("StillHolds is true for %s with %+v, but the outcome is %d, and the slots are the same: %t", self, proof, now.Outcome, same)
			default:
				held++
			}
		}
	}
	randomWorlds(t, tameWorlds, false, check)
	randomWorlds(t, wildWorlds, true, check)
	t.Logf("the proof holds %d times, and does not hold %d times", held, notHeld)
	if held < 300 || notHeld < 1000 {
		t.Error("want at least 300 scenarios in which the proof holds, and 1000 in which it does not")
	}
}
