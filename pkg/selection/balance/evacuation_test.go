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
	check := func(w *world, random *rand.Rand) {
		nodes := map[string]*model.Demotion{}
		for _, name := range w.names() {
			if random.IntN(3) == 0 {
				nodes[name] = &model.Demotion{}
			}
		}
		remaining := *w
		remaining.endpoints = slices.DeleteFunc(slices.Clone(w.endpoints), func(e model.PortEndpoint) bool { return nodes[e.Node] != nil })
		for i := range w.endpoints {
			w.endpoints[i].Demotion = nodes[w.endpoints[i].Node]
		}
		rows, without := w.rows(), remaining.rows()
		for name, row := range rows {
			at := 0
			for i := range w.endpoints {
				endpoint := &w.endpoints[i]
				isLastResort := row.Rank >= 2 // no remaining endpoint serves this node
				if row.Fractions[i] > 0 && (endpoint.Demotion != nil) != isLastResort {
					t.Errorf("%s sends %d to %v, evacuated: %t, rank %d", name, row.Fractions[i], endpoint.Addr, endpoint.Demotion != nil, row.Rank)
				}
				if endpoint.Demotion != nil {
					continue
				}
				if want := without[name].Fractions[at]; max(want, row.Fractions[i])-min(want, row.Fractions[i]) > balance.One>>32 { // rounding
					t.Errorf("%s sends %d to %v, want %d as without evacuated endpoints", name, row.Fractions[i], endpoint.Addr, want)
				}
				at++
			}
			switch {
			case row.Rank >= 2:
				lastResort++
			case row.Outcome != 0:
				served++
			}
		}
	}
	randomWorlds(t, tameWorlds, false, check)
	randomWorlds(t, wildWorlds, true, check)
	if served < 1000 || lastResort < 1000 {
		t.Errorf("only %d nodes are served by remaining endpoints, and %d by evacuated ones; want at least 1000 each", served, lastResort)
	}
}
