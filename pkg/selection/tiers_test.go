package selection

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// tiersText formats tiers as "1 4 | 2 | 3".
func tiersText(tiers []Tier) string {
	var parts []string
	for _, tier := range tiers {
		parts = append(parts, numbers(tier.Endpoints))
	}
	return strings.Join(parts, " | ")
}

func TestTiersFollowTheOwnersOrder(t *testing.T) {
	inZoneA := map[string]string{zone: "a"}
	local := model.Service{InternalTrafficLocal: true}
	tests := map[string]struct {
		service   model.Service
		keys      string
		evacuated string
		endpoints string
		want      string
	}{
		"this node, the rest of the zone, the rest": {
			keys: "hostname zone *", endpoints: "1@node-2/b 2@node-1/a 3@node-3/a 4@node-3/a 5@node-4/b", want: "2 | 3 4 | 1 5",
		},
		"a key without a match has no tier":      {keys: "hostname zone *", endpoints: "1@node-2/b 2@node-3/a", want: "2 | 1"},
		"hard keys end the tiers":                {keys: "hostname zone", endpoints: "1@node-1/a 2@node-2/a 3@node-3/b", want: "1 | 2"},
		"hard keys without a match":              {keys: "zone", endpoints: "1@node-2/b", want: ""},
		"no keys and no hints":                   {endpoints: "1@node-1/a 2@node-2/b", want: "1 2"},
		"a Local policy has one tier":            {service: local, keys: "hostname *", endpoints: "1@node-1/a 2@node-2/b", want: "1"},
		"a Local policy without local endpoints": {service: local, endpoints: "2@node-2/b", want: ""},
		"no terminating endpoints after ready ones": {
			keys: "zone *", endpoints: "1@node-1/a 2t@node-1/a 3t@node-2/b 4@node-2/b", want: "1 | 4",
		},
		"tiers of terminating endpoints without ready ones": {keys: "zone *", endpoints: "1t@node-1/a 2t@node-2/b 3!@node-1/a", want: "1 | 2"},
		"evacuated endpoints after all others": {
			keys: "zone *", evacuated: "node-1", endpoints: "1@node-1/a 2@node-2/a 3@node-3/b", want: "2 | 3 | 1",
		},
		"if all are evacuated, the keys order them": {
			keys: "zone *", evacuated: "node-1 node-3", endpoints: "1@node-1/a 3@node-3/b", want: "1 | 3",
		},
		"evacuated ready endpoints after terminating ones": {
			keys: "zone *", evacuated: "node-1", endpoints: "1@node-1/a 2t@node-2/b 4t@node-1/a", want: "2 | 1",
		},
		"no endpoints": {keys: "zone *", want: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := withKeys(test.service, test.keys)
			nodes := map[string]*model.Demotion{}
			for node := range strings.FieldsSeq(test.evacuated) {
				nodes[node] = &model.Demotion{}
			}
			endpoints := withDemotedNodes(parseZoned(t, test.endpoints), nodes)
			viewpoint := NodeView{Node: model.Node{Name: "node-1", Labels: inZoneA}}
			decision := Decision{Viewpoint: viewpoint, Service: &service, Endpoints: endpoints}
			decision.Selection = Select(&service, false, endpoints, viewpoint)
			if got := tiersText(decision.Tiers()); got != test.want {
				t.Errorf("tiers are %q, want %q", got, test.want)
			}
		})
	}
}

// parseZoned parses "1t@node-2/b": an endpoint by its number, its node and its zone. t means terminating, ! means not
// ready.
func parseZoned(t *testing.T, text string) []model.PortEndpoint {
	t.Helper()
	var all []model.PortEndpoint
	for word := range strings.FieldsSeq(text) {
		name, location, _ := strings.Cut(word, "@")
		node, zone, _ := strings.Cut(location, "/")
		state := model.Endpoint{Node: node, Zone: zone, Ready: true, Serving: true}
		switch name[1:] {
		case "t":
			state.Ready, state.Terminating = false, true
		case "!":
			state.Ready, state.Serving = false, false
		}
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, name[0] - '0'}), 8080)
		all = append(all, model.PortEndpoint{Addr: addr, Endpoint: state})
	}
	return all
}

func TestTiersOfHints(t *testing.T) {
	endpoints := parseZoned(t, "1@node-1/a 2@node-2/a 3@node-3/b")
	for i := range endpoints {
		endpoints[i].HintNodes, endpoints[i].HintZones = []string{endpoints[i].Node}, []string{endpoints[i].Zone}
	}
	viewpoint := NodeView{Node: model.Node{Name: "node-1", Labels: map[string]string{string(policy.Zone): "a"}}}
	decision := Decision{Viewpoint: viewpoint, Service: &model.Service{}, Endpoints: endpoints}
	decision.Selection = Select(decision.Service, false, endpoints, viewpoint)
	if got, want := tiersText(decision.Tiers()), "1 | 2 | 3"; got != want {
		t.Errorf("tiers are %q, want %q", got, want)
	}
}

// TestTiersInRandomScenarios: the first tier is the choice for the ClusterIP. Each later tier is the choice of Select
// without the endpoints of earlier tiers.
func TestTiersInRandomScenarios(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 6))
	depths := map[int]int{}
	randomScenarios(2*numScenarios, func(s *scenario) {
		if t.Failed() {
			return
		}
		nodes := map[string]*model.Demotion{}
		for _, node := range scenarioNodes[:4] {
			if random.IntN(4) == 0 {
				nodes[node] = &model.Demotion{}
			}
		}
		endpoints := withDemotedNodes(s.endpoints(), nodes)
		for _, marked := range [][]model.PortEndpoint{s.endpoints(), endpoints} {
			decision := Decision{Viewpoint: s.viewpoint, Service: &s.service, Endpoints: marked, Selection: s.choose(marked)}
			depths[len(decision.Tiers())]++
			checkTierOrder(t, decision)
		}
		if t.Failed() {
			t.Logf("evacuated nodes %v, scenario %+v\nendpoints %+v", nodes, s, endpoints)
		}
	})
	for depth := range 4 {
		if depths[depth] < 20 {
			t.Errorf("only %d scenarios have %d tiers, want at least 20", depths[depth], depth)
		}
	}
}

// checkTierOrder checks the tiers of any decision.
func checkTierOrder(t *testing.T, decision Decision) {
	t.Helper()
	tiers := decision.Tiers()
	choice, outcome := decision.Selection.ClusterIP()
	if outcome != Balance {
		if tiers != nil {
			t.Errorf("the outcome is not Balance, but the tiers are %s", tiersText(tiers))
		}
		return
	}
	if diff := cmp.Diff(Tier{Endpoints: choice.Endpoints, Slots: choice.Slots}, tiers[0], equateAddrs); diff != "" {
		t.Errorf("first tier (-want +got):\n%s", diff)
	}
	want := []Tier{tiers[0]}
	if !decision.Service.InternalTrafficLocal {
		want = append(want, fallbackTiers(decision, choice.Endpoints)...)
	}
	if tiersText(tiers) != tiersText(want) {
		t.Errorf("tiers are %q, want %q", tiersText(tiers), tiersText(want))
	}
	checkPartition(t, decision, tiers)
}

// fallbackTiers chooses repeatedly, each time without the endpoints chosen before.
func fallbackTiers(decision Decision, first []model.PortEndpoint) []Tier {
	service, earlier, ready := *decision.Service, slices.Clone(first), first[0].Ready
	service.Topology.MaxLoad = 0
	var tiers []Tier
	for {
		rest := filter(decision.Endpoints, func(e model.PortEndpoint) bool {
			isEarlier := slices.ContainsFunc(earlier, func(other model.PortEndpoint) bool { return other.Addr == e.Addr })
			return !isEarlier && (e.Ready || !ready)
		})
		chosen := Select(&service, false, rest, decision.Viewpoint).Cluster.Endpoints
		if len(chosen) == 0 {
			return tiers
		}
		tiers, earlier, ready = append(tiers, Tier{Endpoints: chosen}), append(earlier, chosen...), ready || chosen[0].Ready
	}
}

// checkPartition checks that no endpoint is in two tiers, and that each allowed and usable endpoint is in one.
// Terminating endpoints may be in none if a tier has a ready one.
func checkPartition(t *testing.T, decision Decision, tiers []Tier) {
	t.Helper()
	occurrences := map[netip.AddrPort]int{}
	ready := false
	for _, tier := range tiers {
		if len(tier.Endpoints) == 0 {
			t.Errorf("an empty tier: %q", tiersText(tiers))
		}
		for _, endpoint := range tier.Endpoints {
			occurrences[endpoint.Addr]++
			ready = ready || endpoint.Ready
		}
	}
	for _, endpoint := range decision.Endpoints {
		isAllowed := endpoint.Phase() != model.PhaseNever
		if decision.Service.InternalTrafficLocal {
			isAllowed = isAllowed && endpoint.Node == decision.Viewpoint.Node.Name
		} else {
			isAllowed = isAllowed && decision.Viewpoint.allows(decision.Service.Topology.Keys, &endpoint)
		}
		switch times := occurrences[endpoint.Addr]; {
		case times > 1, times == 1 && !isAllowed:
			t.Errorf("%v occurs %d times in the tiers, and is allowed: %t", endpoint.Addr, times, isAllowed)
		case times == 0 && isAllowed && endpoint.Ready:
			t.Errorf("%v is ready and allowed, but in no tier", endpoint.Addr)
		case times == 0 && isAllowed && !ready:
			t.Errorf("%v is allowed, and no tier has a ready endpoint, but it is in no tier", endpoint.Addr)
		}
	}
}
