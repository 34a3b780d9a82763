package selection

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// withDemotedNodes returns a copy of the endpoints with the demotions of the given nodes.
func withDemotedNodes(endpoints []model.PortEndpoint, nodes map[string]*model.Demotion) []model.PortEndpoint {
	marked := slices.Clone(endpoints)
	for i := range marked {
		marked[i].Demotion = nodes[marked[i].Node]
	}
	return marked
}

// checkLastResort checks a choice among endpoints, some of which are the last resort. It must equal the choice among
// the others. If that is empty, it must equal the choice among all, without demotions and with the reason only. It
// returns the choice that applies.
func checkLastResort(t *testing.T, kind string, only Code, got, others, without *Choice) (want *Choice, isLastResort bool) {
	t.Helper()
	want = others
	if len(want.Endpoints) == 0 {
		want, isLastResort = without, len(without.Endpoints) > 0
	}
	if numbers(got.Endpoints) != numbers(want.Endpoints) || got.Tier != want.Tier {
		t.Errorf("the %s choice is %s in tier %q, want %s in tier %q", kind, numbers(got.Endpoints), got.Tier, numbers(want.Endpoints), want.Tier)
	}
	if (got.Reason.Code == only) != isLastResort {
		t.Errorf("the reason of the %s choice is %+v, last resort: %v", kind, got.Reason, isLastResort)
	}
	checkReason(t, got.Reason)
	return want, isLastResort
}

// TestEvacuatedEndpointsAreTheLastResort: in random scenarios with random nodes that are being evacuated, each choice
// equals that among the remaining endpoints or, if that is empty, the choice without evacuations. Flows continue.
func TestEvacuatedEndpointsAreTheLastResort(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	seen := map[Code]int{}
	randomScenarios(numScenarios, func(s *scenario) {
		if t.Failed() {
			return
		}
		nodes := map[string]*model.Demotion{}
		for _, node := range scenarioNodes[:4] {
			if random.IntN(2) == 0 {
				nodes[node] = &model.Demotion{Until: new(time.Unix(1800000000, 0))}
			}
		}
		all := s.endpoints()
		remaining := slices.DeleteFunc(slices.Clone(all), func(endpoint model.PortEndpoint) bool { return nodes[endpoint.Node] != nil })
		marked := withDemotedNodes(all, nodes)
		got, amongRemaining, without := s.choose(marked), s.choose(remaining), s.choose(all)
		check := func(kind string, got, amongRemaining, without *Choice) {
			want, isLastResort := checkLastResort(t, kind, OnlyEvacuated, got, amongRemaining, without)
			if !isLastResort && len(got.Endpoints) > 0 && got.Reason != want.Reason {
				t.Errorf("the reason of the %s choice is %+v, want %+v", kind, got.Reason, want.Reason)
			}
			seen[got.Reason.Code]++
		}
		check("cluster", &got.Cluster, &amongRemaining.Cluster, &without.Cluster)
		if got.Local != nil {
			check("local", got.Local, amongRemaining.Local, without.Local)
		}
		decision := Decision{Viewpoint: s.viewpoint, Service: &s.service, Endpoints: marked, Selection: got}
		for _, exclusion := range decision.Exclusions() {
			checkReason(t, exclusion.Reason)
			seen[exclusion.Reason.Code]++
			index := slices.IndexFunc(marked, func(endpoint model.PortEndpoint) bool { return endpoint.Addr == exclusion.Endpoint })
			if exclusion.Reason.Code == NodeEvacuated && marked[index].Demotion == nil {
				t.Errorf("the reason for %v is NodeEvacuated, but its node is not evacuated", marked[index])
			}
		}
		before := Decision{Viewpoint: s.viewpoint, Service: &s.service, Endpoints: all, Selection: without}
		clusterBefore, localBefore, _ := before.AllowedEndpoints()
		if cluster, local, _ := decision.AllowedEndpoints(); !slices.Equal(cluster, clusterBefore) || !slices.Equal(local, localBefore) {
			t.Errorf("allowed endpoints are %v and %v during the evacuation, %v and %v before", cluster, local, clusterBefore, localBefore)
		}
		if t.Failed() {
			t.Logf("evacuated nodes %v, scenario %+v\nendpoints %+v", nodes, s, all)
		}
	})
	for _, code := range []Code{OnlyEvacuated, NodeEvacuated, MatchedTopologyKey, HintedForThisZone, OnThisNode} {
		if seen[code] < 5 {
			t.Errorf("%s occurred only %d times", code, seen[code])
		}
	}
}
