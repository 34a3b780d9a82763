package balance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// TestRemainingEndpointsShareTheLoad: while nodes are being evacuated, the endpoints on other nodes share the load
// within the bound, as if there were no evacuated endpoints. Only client nodes that none of them can serve use
// evacuated ones.
func TestRemainingEndpointsShareTheLoad(t *testing.T) {
	served, lastResort := 0, 0
	check := func(s *scenario, random *rand.Rand) {
		nodes := map[string]*model.Demotion{}
		for _, name := range s.names() {
			if random.IntN(3) == 0 {
				nodes[name] = &model.Demotion{}
			}
		}
		remaining := *s
		remaining.endpoints = slices.DeleteFunc(slices.Clone(s.endpoints), func(e model.PortEndpoint) bool { return nodes[e.Node] != nil })
		for i := range s.endpoints {
			s.endpoints[i].Demotion = nodes[s.endpoints[i].Node]
		}
		rows, without := s.rows(), remaining.rows()
		for name, row := range rows {
			index := 0
			for i := range s.endpoints {
				endpoint := &s.endpoints[i]
				isLastResort := row.Rank >= 2 // no remaining endpoint serves this node
				if row.Fractions[i] > 0 && (endpoint.Demotion != nil) != isLastResort {
					t.Errorf("%s sends %d to %v, evacuated: %t, rank %d", name, row.Fractions[i], endpoint.Addr, endpoint.Demotion != nil, row.Rank)
				}
				if endpoint.Demotion != nil {
					continue
				}
				if want := without[name].Fractions[index]; max(want, row.Fractions[i])-min(want, row.Fractions[i]) > balance.One>>32 { // rounding
					t.Errorf("%s sends %d to %v, want %d as without evacuated endpoints", name, row.Fractions[i], endpoint.Addr, want)
				}
				index++
			}
			switch {
			case row.Rank >= 2:
				lastResort++
			case row.Outcome != 0:
				served++
			}
		}
	}
	randomScenarios(t, numConsistent, false, check)
	randomScenarios(t, numInconsistent, true, check)
	if served < 1000 || lastResort < 1000 {
		t.Errorf("only %d nodes are served by remaining endpoints, and %d by evacuated ones; want at least 1000 each", served, lastResort)
	}
}
