package xds

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestCallsAreSpreadAsConnectionsAre checks that calls are spread evenly over endpoints, and not over zones, which have
// five, three and one of them.
func TestCallsAreSpreadAsConnectionsAre(t *testing.T) {
	s := newFixture(t)
	var endpoints []endpoint
	for zone, count := range map[string]int{"a": 5, "b": 3, "c": 1} {
		for range count {
			endpoints = append(endpoints, s.startBackend("node-2", zone))
		}
	}
	s.serve([]policy.Key{policy.AnyNode}, endpoints...)
	s.completeSync()
	c := s.client()
	c.expectReaches("all", 1000, endpoints...)
	const calls = 9000
	got := c.do(command{Calls: calls})
	// The client uses weighted round-robin, so the sum of squares is far below that of random selection, which exceeds
	// 26.1 with 8 degrees of freedom once in a thousand times.
	chi, expected := 0.0, float64(calls)/float64(len(endpoints))
	for _, endpoint := range endpoints {
		difference := float64(got.Answers[endpoint.addr.String()]) - expected
		chi += difference * difference / expected
	}
	if chi > 26.1 || len(got.Errors) > 0 {
		t.Errorf("chi-square is %.1f, want at most 26.1: %s; errors %s", chi, formatCounts(got.Answers), formatCounts(got.Errors))
	}
}
