package selection_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// headlessFixture is a headless Service in the view of node n-a in zone a. Nodes n-b and n-c are in zones of their own.
type headlessFixture struct {
	topology  policy.Topology
	endpoints []string // ADDRESS NODE, and "unready" or "terminating"
	evacuated []string // nodes
}

func (f headlessFixture) decisions() []selection.Decision {
	name := model.ObjectName{Namespace: "shop", Name: "db"}
	slice := &model.EndpointSlice{
		Name: name, Service: name, Ports: []model.SlicePort{{Name: "pg", Protocol: model.TCP, Port: 5432}},
	}
	for _, text := range f.endpoints {
		words := strings.Fields(text)
		endpoint := model.SliceEndpoint{Addr: netip.MustParseAddr(words[0]), Endpoint: model.Endpoint{Node: words[1], Ready: true, Serving: true}}
		if len(words) > 2 {
			endpoint.Ready, endpoint.Serving, endpoint.Terminating = false, words[2] == "terminating", words[2] == "terminating"
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{name: {
			Name: name, IsHeadless: true, Topology: f.topology, Ports: []model.ServicePort{{Name: "pg", Protocol: model.TCP, Port: 5432}},
		}},
		Slices: map[model.ObjectName]*model.EndpointSlice{name: slice}, Nodes: map[string]*model.Node{},
		Demotions: map[model.DemotionKey]*model.Demotion{}, AllNodes: new(true),
	}
	for _, zone := range []string{"a", "b", "c"} {
		node := "n-" + zone
		change.Nodes[node] = &model.Node{Name: node, Labels: map[string]string{string(policy.Zone): zone}}
	}
	for _, node := range f.evacuated {
		change.Demotions[model.DemotionKey{Node: node}] = &model.Demotion{}
	}
	cluster := model.NewCluster("n-a")
	cluster.Apply(change)
	planner := selection.NewPlanner(cluster)
	planner.ApplyChange(change)
	return planner.Decide(name, []model.Family{model.IPv4})
}

func TestHeadlessServices(t *testing.T) {
	zoned, anywhere := policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}}, policy.Topology{Keys: []policy.Key{policy.AnyNode}}
	bounded := policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 100}
	for title, test := range map[string]struct {
		fixture headlessFixture
		want    string // the last bytes of the addresses; "1 more" means 1 and at least one other
		reason  selection.Code
	}{
		"its own zone": {headlessFixture{zoned, []string{"10.0.0.1 n-a", "10.0.0.2 n-b"}, nil}, "1", selection.MatchedTopologyKey},
		"the next key, if no endpoint is near": {
			headlessFixture{zoned, []string{"10.0.0.2 n-b", "10.0.0.3 n-c"}, nil}, "2 3", selection.MatchedAnyNode,
		},
		"no endpoint on an evacuated node": {
			headlessFixture{zoned, []string{"10.0.0.1 n-a", "10.0.0.2 n-b"}, []string{"n-a"}}, "2", selection.MatchedAnyNode,
		},
		"endpoints on evacuated nodes, if there are no others": {
			headlessFixture{zoned, []string{"10.0.0.1 n-a", "10.0.0.2 n-b"}, []string{"n-a", "n-b"}}, "1", selection.OnlyEvacuated,
		},
		"only ready endpoints": {
			headlessFixture{anywhere, []string{"10.0.0.1 n-a terminating", "10.0.0.2 n-b unready", "10.0.0.3 n-c"}, nil},
			"3", selection.MatchedAnyNode,
		},
		"never terminating endpoints": {
			headlessFixture{anywhere, []string{"10.0.0.1 n-a terminating"}, nil}, "", selection.NoUsableEndpoints,
		},
		"only near endpoints, within the load bound": {
			headlessFixture{bounded, []string{"10.0.0.1 n-a", "10.0.0.2 n-b", "10.0.0.3 n-c"}, nil}, "1", selection.WithinLoadBound,
		},
		"the rest elsewhere, beyond the load bound": {
			headlessFixture{bounded, []string{"10.0.0.1 n-a", "10.0.0.2 n-b", "10.0.0.3 n-b", "10.0.0.4 n-b"}, nil},
			"1 more", selection.Spillover,
		},
	} {
		t.Run(title, func(t *testing.T) {
			decisions := test.fixture.decisions()
			if len(decisions) != 2 || !decisions[0].ForAddresses || decisions[1].Port.Name != "pg" {
				t.Fatalf("unexpected decisions %v", decisions)
			}
			for i, decision := range decisions {
				chosen := decision.Selection.Cluster
				var got []string
				for _, endpoint := range chosen.Endpoints {
					got = append(got, fmt.Sprint(endpoint.Addr.Addr().AsSlice()[3]))
					if wantPort := uint16(5432 * i); endpoint.Addr.Port() != wantPort {
						t.Errorf("endpoint %s, want port %d", endpoint.Addr, wantPort)
					}
				}
				if strings.HasSuffix(test.want, " more") && len(got) > 1 {
					got = append(got[:1], "more")
				}
				if strings.Join(got, " ") != test.want || chosen.Reason.Code != test.reason {
					t.Errorf("chosen endpoints %q with reason %s, want %q with reason %s", got, chosen.Reason.Code, test.want, test.reason)
				}
				for _, exclusion := range decision.Exclusions() { // every exclusion must have a reason
					isChosen := slices.ContainsFunc(chosen.Endpoints, func(e model.PortEndpoint) bool { return e.Addr == exclusion.Endpoint })
					if exclusion.Reason.Sentence() == "" || isChosen {
						t.Errorf("exclusion of a chosen endpoint, or without a sentence: %+v", exclusion)
					}
				}
			}
		})
	}
}
