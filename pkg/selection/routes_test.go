package selection

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// routes has the endpoints' numbers for each of the three kinds of connection, or the outcome without endpoints.
type routes struct{ ClusterIP, External, ShortCircuit string }

const (
	refusedRoute = "refused"
	droppedRoute = "dropped"
)

func routeOf(choice Choice, outcome Outcome) string {
	return map[Outcome]string{Balance: numbers(choice.Endpoints), Refuse: refusedRoute, Drop: droppedRoute}[outcome]
}

func routesOf(selection Selection) routes {
	return routes{
		ClusterIP: routeOf(selection.ClusterIP()), External: routeOf(selection.External()), ShortCircuit: routeOf(selection.ShortCircuit()),
	}
}

// Each row is one of kube-proxy's table of which endpoints serve which connections: C is the cluster choice and L the
// local one. A port without external frontends has no connections in the last two columns.
func TestWhichChoiceServesWhichConnections(t *testing.T) {
	const none = ""
	tests := map[string]struct {
		internalLocal, externalLocal, external bool
		want                                   routes
	}{
		"1: no policy, no external frontend":        {false, false, false, routes{"C", none, none}},
		"2: no policy":                              {false, false, true, routes{"C", "C", "C"}},
		"3: externalTrafficPolicy: Local":           {false, true, true, routes{"C", "L", "C"}},
		"4: internalTrafficPolicy, not external":    {true, false, false, routes{"L", none, none}},
		"5: internalTrafficPolicy: Local":           {true, false, true, routes{"L", "C", "C"}},
		"6: both policies Local":                    {true, true, true, routes{"L", "L", "C"}},
		"7: externalTrafficPolicy, not external":    {false, true, false, routes{"C", none, none}},
		"both policies Local, no external frontend": {true, true, false, routes{"L", none, none}},
	}
	// The cluster choice follows hints, also in a short circuit. The local choice does not.
	endpointCases := map[string]struct {
		endpoints string
		routes    map[string]string
	}{
		"endpoints on this and other nodes": {"1*(b) 2@node-2(a) 3@node-3(b)", map[string]string{"C": "2", "L": "1", none: none}},
		"ready here, terminating on others": {"1* 2t@node-2", map[string]string{"C": "1", "L": "1", none: none}},
		"terminating here, ready on others": {"1t* 2@node-2", map[string]string{"C": "2", "L": "1", none: none}},
		"endpoints only on other nodes":     {"2@node-2(a) 3@node-3(b)", map[string]string{"C": "2", "L": droppedRoute, none: none}},
		"terminating, only on other nodes":  {"2t@node-2 3!*", map[string]string{"C": "2", "L": droppedRoute, none: none}},
		"endpoints on unknown nodes":        {"2 3", map[string]string{"C": "2 3", "L": droppedRoute, none: none}},
		"no usable endpoint":                {"1!* 2x@node-2", map[string]string{"C": refusedRoute, "L": refusedRoute, none: none}},
		"no endpoint":                       {"", map[string]string{"C": refusedRoute, "L": refusedRoute, none: none}},
	}
	for name, test := range tests {
		for title, endpointCase := range endpointCases {
			t.Run(name+", "+title, func(t *testing.T) {
				service := &model.Service{InternalTrafficLocal: test.internalLocal, ExternalTrafficLocal: test.externalLocal}
				got := routesOf(Select(service, test.external, parseEndpoints(t, endpointCase.endpoints), viewFrom(testNodes)))
				if !test.external {
					got.External, got.ShortCircuit = none, none
				}
				want := routes{
					endpointCase.routes[test.want.ClusterIP], endpointCase.routes[test.want.External], endpointCase.routes[test.want.ShortCircuit],
				}
				if got != want {
					t.Errorf("connections go to %+v, want %+v", got, want)
				}
			})
		}
	}
}

func TestRoutesWithTopologyKeys(t *testing.T) {
	tests := map[string]struct {
		service   model.Service
		endpoints string
		want      routes
	}{
		"no policy: keys apply to all connections": {
			withKeys(exposed(model.Service{}), "zone"), "1* 2@node-2 3@node-3", routes{"1 2", "1 2", "1 2"},
		},
		"hard keys that match no endpoint: all are refused": {
			withKeys(exposed(model.Service{}), "zone"), "3@node-3", routes{refusedRoute, refusedRoute, refusedRoute},
		},
		"externalTrafficPolicy: Local: keys do not apply to external clients": {
			withKeys(externalLocal, "example.com/row *"), "1* 2@node-2", routes{"1 2", "1", "1 2"},
		},
		"externalTrafficPolicy: Local: hard keys refuse internal clients, the policy drops external ones": {
			withKeys(externalLocal, "hostname"), "2@node-2", routes{refusedRoute, droppedRoute, refusedRoute},
		},
		"externalTrafficPolicy: Local: hard keys refuse internal clients, local endpoints serve external ones": {
			withKeys(externalLocal, "example.com/row"), "1* 2@node-2", routes{refusedRoute, "1", refusedRoute},
		},
		"internalTrafficPolicy: Local: hard keys refuse connections to external frontends": {
			withKeys(exposed(internalLocal), "zone"), "3@node-3", routes{droppedRoute, refusedRoute, refusedRoute},
		},
		"internalTrafficPolicy: Local: keys apply to external frontends": {
			withKeys(exposed(internalLocal), "zone"), "1* 2@node-2 3@node-3", routes{"1", "1 2", "1 2"},
		},
		"both policies Local: keys apply only to the short circuit": {
			withKeys(bothLocal, "rack"), "1* 2@node-2 3@node-3", routes{"1", "1", "1 3"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := routesOf(choose(&test.service, parseEndpoints(t, test.endpoints), viewFrom(testNodes))); got != test.want {
				t.Errorf("connections go to %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTheReasonNamesThePolicyThatServes(t *testing.T) {
	tests := map[string]struct {
		service            model.Service
		endpoints          string
		clusterIP, outside Reason
	}{
		"internalTrafficPolicy: Local": {
			exposed(internalLocal), "1*", Reason{Code: OnThisNode, Key: internalTrafficPolicy}, Reason{Code: AllEndpoints},
		},
		"externalTrafficPolicy: Local": {
			externalLocal, "1*", Reason{Code: AllEndpoints}, Reason{Code: OnThisNode, Key: externalTrafficPolicy},
		},
		"both, with ready endpoints": {
			bothLocal, "1*", Reason{Code: OnThisNode, Key: internalTrafficPolicy}, Reason{Code: OnThisNode, Key: externalTrafficPolicy},
		},
		"both, with terminating endpoints": {
			bothLocal, "1t*",
			Reason{Code: OnThisNodeTerminating, Key: internalTrafficPolicy}, Reason{Code: OnThisNodeTerminating, Key: externalTrafficPolicy},
		},
		"both, without endpoints on this node": {
			bothLocal, "2@node-2",
			Reason{Code: NoneOnThisNode, Key: internalTrafficPolicy}, Reason{Code: NoneOnThisNode, Key: externalTrafficPolicy},
		},
		"no usable endpoint: no policy is named": {
			bothLocal, "1!*", Reason{Code: NoUsableEndpoints}, Reason{Code: NoUsableEndpoints},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			selection := choose(&test.service, parseEndpoints(t, test.endpoints), viewFrom(testNodes))
			clusterIP, _ := selection.ClusterIP()
			outside, _ := selection.External()
			if clusterIP.Reason != test.clusterIP || outside.Reason != test.outside {
				t.Errorf("reasons %+v (ClusterIP) and %+v (external), want %+v and %+v", clusterIP.Reason, outside.Reason, test.clusterIP, test.outside)
			}
		})
	}
}
