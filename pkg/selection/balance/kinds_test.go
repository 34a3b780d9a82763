package balance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// loadsOfKind returns the load of each endpoint relative to the mean, if the nodes of each zone share its demand equally.
func (s *scenario) loadsOfKind(rows map[string]row, zones map[string]uint32) []float64 {
	nodes, total := map[string]float64{}, 0.0
	for _, labels := range s.nodes {
		nodes[labels[string(policy.Zone)]]++
	}
	for zone := range nodes {
		total += float64(zones[zone])
	}
	loads, ready := make([]float64, len(s.endpoints)), 0.0
	for i := range s.endpoints {
		if s.endpoints[i].Ready {
			ready++
		}
	}
	for _, name := range s.names() {
		zone, all := s.nodes[name][string(policy.Zone)], 0.0
		for i := range s.endpoints {
			all += fractionAt(rows[name], i)
		}
		for i := range s.endpoints {
			loads[i] += float64(zones[zone]) / nodes[zone] / total * fractionAt(rows[name], i) / all * ready
		}
	}
	return loads
}

// clientZones returns the sums of clients by zone.
func (s *scenario) clientZones() map[string]uint32 {
	zones := map[string]uint32{}
	for name, amount := range s.clients {
		if labels, known := s.nodes[name]; known {
			zones[labels[string(policy.Zone)]] += amount
		}
	}
	return zones
}

// TestBothKindsAreWithinTheLimit: a plan for new and open connections keeps the load of both within the limit, however
// differently they are distributed.
func TestBothKindsAreWithinTheLimit(t *testing.T) {
	checked, highest := 0, 0.0
	measuredScenarios(t, 3*numMeasured, func(s *scenario, random *rand.Rand) {
		s.open = map[string]uint32{}
		for _, name := range s.names() {
			if zone := s.nodes[name][string(policy.Zone)]; s.open[zone] == 0 && random.IntN(3) > 0 {
				s.open[zone] = []uint32{1, 10, 100, 1000}[random.IntN(4)]
			}
		}
		zones, open := s.clientZones(), 0
		for _, name := range s.names() {
			open += int(s.open[s.nodes[name][string(policy.Zone)]])
		}
		someReady := slices.ContainsFunc(s.endpoints, func(e model.PortEndpoint) bool { return e.Ready })
		if s.keys[len(s.keys)-1] != policy.AnyNode || !someReady || len(zones) == 0 || open == 0 {
			return
		}
		checked++
		rows := s.rows()
		checkRows(t, s, rows)
		for kind, demand := range map[string]map[string]uint32{"new": zones, "open": s.open} {
			busiest := slices.Max(s.loadsOfKind(rows, demand))
			if highest = max(highest, busiest*100/float64(s.limit)); busiest > float64(s.limit)/100+1e-4 {
				t.Errorf("%s connections: the busiest endpoint gets %.4f times the mean", kind, busiest)
			}
		}
	})
	if checked < numMeasured/2 {
		t.Errorf("%d scenarios were checked, want at least %d", checked, numMeasured/2)
	}
	t.Logf("%d scenarios, the highest load is %.4f %% of the limit", checked, highest)
}

// TestLongConnections: clients keep a connection each. Those in one zone reconnect once an hour, others every 30 s, so
// nearly all new connections are from the other zones.
func TestLongConnections(t *testing.T) {
	for _, c := range []struct {
		name             string
		nodes, endpoints []int
		clients          []uint32 // by zone
		long             int      // the zone with long connections
	}{
		{"alike, 40-1-1-1", []int{10, 10, 10, 10}, []int{40, 1, 1, 1}, []uint32{1, 1, 1, 1}, 1},
		{"alike, 6-1-1", []int{3, 3, 3}, []int{6, 1, 1}, []uint32{1, 1, 1}, 1},
		{"80 %, 40-1-1-1", []int{10, 10, 10, 10}, []int{40, 1, 1, 1}, []uint32{1, 12, 1, 1}, 1},
		{"80 %, 6-1-1", []int{3, 3, 3}, []int{6, 1, 1}, []uint32{1, 8, 1}, 1},
		{"80 %, 200 nodes", []int{80, 60, 30, 20, 10}, []int{40, 30, 16, 10, 4}, []uint32{1, 1, 1, 1, 16}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shape(c.nodes, c.endpoints, policy.Zone, policy.AnyNode)
			s.measured, s.clients, s.open = true, map[string]uint32{}, map[string]uint32{}
			for zone, clients := range c.clients {
				perSecond := uint32(120)
				if zone == c.long {
					perSecond = 1
				}
				s.clients[nodeIn(zone, 0)] = clients * perSecond
				s.open[string(rune('a'+zone))] = clients
			}
			both := s.rows()
			busiest := map[string]float64{}
			for kind, demand := range map[string]map[string]uint32{"new": s.clientZones(), "open": s.open} {
				busiest[kind] = slices.Max(s.loadsOfKind(both, demand))
			}
			bothNear, open := s.near(both), s.open
			s.open = nil
			newOnly := s.rows()
			newNear, newBusiest := s.near(newOnly), slices.Max(s.loadsOfKind(newOnly, open))
			t.Logf("busiest: new %.3f, open %.3f, and %.2f if planned by new connections alone; %.1f %% stay near instead of %.1f %%",
				busiest["new"], busiest["open"], newBusiest, 100*bothNear, 100*newNear)
			if newBusiest < 3 || newNear-bothNear > 0.06 {
				t.Errorf("planned by new connections alone: %.2f, %.1f %% stay near; want at least 3, and at most 6 points more",
					newBusiest, 100*newNear)
			}
			if max(busiest["new"], busiest["open"]) > 1.2+1e-4 {
				t.Errorf("busiest %v, want at most 1.2", busiest)
			}
		})
	}
}

// near returns the share of new connections that stay in their zone.
func (s *scenario) near(rows map[string]row) float64 {
	nodes, zones, total, near := map[string]float64{}, s.clientZones(), 0.0, 0.0
	for _, labels := range s.nodes {
		nodes[labels[string(policy.Zone)]]++
	}
	for _, name := range s.names() {
		zone := s.nodes[name][string(policy.Zone)]
		demand, all := float64(zones[zone])/nodes[zone], 0.0
		for i := range s.endpoints {
			all += fractionAt(rows[name], i)
		}
		for i := range s.endpoints {
			if s.endpoints[i].Zone == zone {
				near += demand * fractionAt(rows[name], i) / all
			}
		}
		total += demand
	}
	return near / total
}
