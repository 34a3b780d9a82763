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
	check := func(s *scenario, random *rand.Rand) {
		names := s.names()
		self := names[random.IntN(len(names))]
		classes := s.nodeClasses(self)
		endpointClasses := balance.NewEndpointClasses(s.keys, s.endpoints, s.valueOf)
		share := balance.NewPlan(s.demand(classes), endpointClasses, s.limit).Share(self, s.nodes[self])
		proof, slotsBefore := share.NearProof(), share.Slots(service, balance.Hashes(s.endpoints))
		hosts := map[string]bool{self: true}
		for _, endpoint := range s.endpoints {
			hosts[endpoint.Node] = true
		}
		for range 4 {
			for n := range 1 + random.IntN(3) {
				labels := maps.Clone(s.nodes[names[random.IntN(len(names))]])
				labels[policy.DemandLabel] = fmt.Sprint(random.IntN(6))
				classes.Set(fmt.Sprintf("new-%d", n), labels)
			}
			if removed := names[random.IntN(len(names))]; !hosts[removed] {
				classes.Remove(removed)
			}
			demand := s.demand(classes)
			current := balance.NewPlan(demand, endpointClasses, s.limit).Share(self, s.nodes[self])
			switch same := slices.Equal(current.Slots(service, balance.Hashes(s.endpoints)), slotsBefore); {
			case !proof.StillHolds(demand, uint64(s.limit)):
				notHeld++
			case !same || current.Outcome != balance.WithinLoadBound:
				t.Errorf("StillHolds is true for %s with %+v, but the outcome is %d, and the slots are the same: %t", self, proof, current.Outcome,
					same)
			default:
				held++
			}
		}
	}
	randomScenarios(t, numConsistent, false, check)
	randomScenarios(t, numInconsistent, true, check)
	t.Logf("the proof holds %d times, and does not hold %d times", held, notHeld)
	if held < 300 || notHeld < 1000 {
		t.Error("want at least 300 scenarios in which the proof holds, and 1000 in which it does not")
	}
}
