package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// portOn is what a node does with a port: so many slots to each endpoint.
func portOn(node, service, reason string, slots map[string]int) explain.Port {
	return explain.Port{
		Node: node, Service: service, Port: "http", Number: 80, Protocol: "TCP", Family: "IPv4",
		Cluster: explain.Choice{Reason: reason, Slots: slots},
	}
}

func TestAnEvacuationIsComparedWithNow(t *testing.T) {
	now := []explain.Port{
		portOn("node-a", "shop/web", "MatchedTopologyKey", map[string]int{"a": 1, "b": 1}),
		portOn("node-a", "shop/db", "MatchedTopologyKey", map[string]int{"x": 1}),
		portOn("node-b", "shop/web", "MatchedTopologyKey", map[string]int{"c": 1}),
		portOn("node-b", "shop/db", "NoTopologyMatch", map[string]int{}),
	}
	then := []explain.Port{
		portOn("node-a", "shop/web", "MatchedAnyNode", map[string]int{"c": 1}),
		portOn("node-a", "shop/db", "OnlyEvacuated", map[string]int{"x": 1}),
		portOn("node-b", "shop/web", "MatchedTopologyKey", map[string]int{"c": 1}),
		portOn("node-b", "shop/db", "NoTopologyMatch", map[string]int{}),
	}
	got := explain.Evacuations(now, then)
	want := []explain.Evacuation{
		{
			Service: "shop/web", Port: "http", Number: 80, Protocol: "TCP", Family: "IPv4", OnlyEvacuated: []string{},
			Now: explain.Spread{Endpoints: 3, Busiest: "c", Load: 1.5}, Then: explain.Spread{Endpoints: 1, Busiest: "c", Load: 3},
		},
		{
			Service: "shop/db", Port: "http", Number: 80, Protocol: "TCP", Family: "IPv4", OnlyEvacuated: []string{"node-a"},
			Now: explain.Spread{Endpoints: 1, Busiest: "x", Load: 1}, Then: explain.Spread{Endpoints: 1, Busiest: "x", Load: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the comparison (-want +got):\n%s", diff)
	}
	var text strings.Builder
	if err := explain.EvacuationText(&text, []string{"n1", "n2", "n3", "n4", "n5"}, got); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/evacuation.txt", text.String())
}
