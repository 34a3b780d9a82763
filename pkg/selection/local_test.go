package selection

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

var (
	internalLocal = model.Service{InternalTrafficLocal: true}
	externalLocal = exposed(model.Service{ExternalTrafficLocal: true})
	bothLocal     = exposed(model.Service{InternalTrafficLocal: true, ExternalTrafficLocal: true})
)

// exposed adds an IPv4 address for external clients to a Service that has ClusterIPs of both families.
func exposed(service model.Service) model.Service {
	service.ClusterIPs, service.ExternalIPs = parseAddrs("10.96.0.1", "fd00:96::1"), parseAddrs("192.0.2.1")
	return service
}

// choose selects for a port that has no node port in IPv4.
func choose(service *model.Service, endpoints []model.PortEndpoint, viewpoint NodeView) Selection {
	return Select(service, service.IsExternal(model.ServicePort{}, model.IPv4), endpoints, viewpoint)
}

func withKeys(service model.Service, keys string) model.Service {
	service.Topology = policy.Topology{Keys: parseKeys(keys)}
	return service
}

func TestLocalChoice(t *testing.T) {
	tests := map[string]struct {
		service   model.Service
		endpoints string
		want      string
		tier      string
		reason    Reason
	}{
		"ready endpoints on this node are used": {
			internalLocal, "1* 2@node-2 3*", "1 3", TierNode, Reason{Code: OnThisNode, Key: "internalTrafficPolicy"},
		},
		"terminating ones together with ready ones are not used": {
			internalLocal, "1* 3t*", "1", TierNode, Reason{Code: OnThisNode, Key: "internalTrafficPolicy"},
		},
		"terminating ones are used if none on this node is ready, even if others are": {
			internalLocal, "2@node-2 3t* 4!*", "3", TierNode, Reason{Code: OnThisNodeTerminating, Key: "internalTrafficPolicy"},
		},
		"endpoints on other nodes are not used": {
			internalLocal, "1!* 2@node-2", "", "", Reason{Code: NoneOnThisNode, Key: "internalTrafficPolicy"},
		},
		"an endpoint without a node is not used": {
			internalLocal, "1", "", "", Reason{Code: NoneOnThisNode, Key: "internalTrafficPolicy"},
		},
		"unusable endpoints": {
			internalLocal, "1!* 2!@node-2", "", "", Reason{Code: NoUsableEndpoints},
		},
		"no endpoints": {
			internalLocal, "", "", "", Reason{Code: NoEndpoints},
		},
		"the reason names the external policy": {
			externalLocal, "1* 2@node-2", "1", TierNode, Reason{Code: OnThisNode, Key: "externalTrafficPolicy"},
		},
		"with both policies, the reason names the internal one": {
			bothLocal, "2@node-2", "", "", Reason{Code: NoneOnThisNode, Key: "internalTrafficPolicy"},
		},
		"hints do not apply": {
			internalLocal, "1*(b)[node-2] 3*(a)[node-1]", "1 3", TierNode, Reason{Code: OnThisNode, Key: "internalTrafficPolicy"},
		},
		"topology keys do not apply": {
			withKeys(internalLocal, "example.com/row"), "1* 2@node-2", "1", TierNode, Reason{Code: OnThisNode, Key: "internalTrafficPolicy"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := choose(&test.service, parseEndpoints(t, test.endpoints), viewFrom(testNodes)).Local
			if got == nil {
				t.Fatal("no local choice")
			}
			if diff := cmp.Diff(test.want, numbers(got.Endpoints)); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
			if got.Tier != test.tier || got.Reason != test.reason {
				t.Errorf("tier %q and reason %+v, want %q and %+v", got.Tier, got.Reason, test.tier, test.reason)
			}
		})
	}
}

func TestNodeWithoutANameHasNoEndpoints(t *testing.T) {
	got := choose(&internalLocal, parseEndpoints(t, "1 2@node-2"), NodeView{}).Local
	if numbers(got.Endpoints) != "" || got.Reason.Code != NoneOnThisNode {
		t.Errorf("endpoints %q with reason %+v, want none", numbers(got.Endpoints), got.Reason)
	}
}

func TestClusterIPChoice(t *testing.T) {
	tests := map[string]struct {
		service   model.Service
		endpoints string
		want      string
		code      Code
		outcome   Outcome
	}{
		"without a policy, all endpoints": {
			model.Service{}, "1* 2@node-2", "1 2", AllEndpoints, Balance,
		},
		"without endpoints, connections are refused": {
			model.Service{}, "", "", NoEndpoints, Refuse,
		},
		"without usable endpoints, connections are refused": {
			model.Service{}, "1!*", "", NoUsableEndpoints, Refuse,
		},
		"connections are refused if hard topology keys match no endpoint": {
			withKeys(model.Service{}, "hostname"), "2@node-2", "", NoTopologyMatch, Refuse,
		},
		"internalTrafficPolicy: Local uses the endpoints on this node": {
			internalLocal, "1* 2@node-2", "1", OnThisNode, Balance,
		},
		"internalTrafficPolicy: Local drops if endpoints are only on other nodes": {
			internalLocal, "2@node-2", "", NoneOnThisNode, Drop,
		},
		"internalTrafficPolicy: Local drops if only terminating endpoints are on other nodes": {
			internalLocal, "2t@node-2", "", NoneOnThisNode, Drop,
		},
		"internalTrafficPolicy: Local refuses if no endpoint is usable": {
			internalLocal, "1!* 2!@node-2", "", NoUsableEndpoints, Refuse,
		},
		"internalTrafficPolicy: Local drops despite topology keys": {
			withKeys(internalLocal, "zone *"), "2@node-2", "", NoneOnThisNode, Drop,
		},
		"internalTrafficPolicy: Local governs the ClusterIP even with an external address": {
			bothLocal, "2@node-2", "", NoneOnThisNode, Drop,
		},
		"externalTrafficPolicy: Local does not govern the ClusterIP": {
			externalLocal, "2@node-2", "2", AllEndpoints, Balance,
		},
		"externalTrafficPolicy: Local does not drop on the ClusterIP": {
			withKeys(externalLocal, "hostname"), "2@node-2", "", NoTopologyMatch, Refuse,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			choice, outcome := choose(&test.service, parseEndpoints(t, test.endpoints), viewFrom(testNodes)).ClusterIP()
			if got := numbers(choice.Endpoints); got != test.want || choice.Reason.Code != test.code || outcome != test.outcome {
				t.Errorf("endpoints %q, reason %s, outcome %d; want %q, %s, %d",
					got, choice.Reason.Code, outcome, test.want, test.code, test.outcome)
			}
		})
	}
}

func TestExternalAddressesApplyToOneFamily(t *testing.T) {
	for name, test := range map[string]struct {
		service model.Service
		family  model.Family
		want    selectionText
	}{
		"external policy, family with an external address":        {externalLocal, model.IPv4, selectionText{"1 2", "1", true}},
		"external policy, family without an external address":     {externalLocal, model.IPv6, selectionText{"1 2", "-", true}},
		"both policies Local, family with an external address":    {bothLocal, model.IPv4, selectionText{"1 2", "1", true}},
		"both policies Local, family without an external address": {bothLocal, model.IPv6, selectionText{"-", "1", true}},
	} {
		t.Run(name, func(t *testing.T) {
			external := test.service.IsExternal(model.ServicePort{}, test.family)
			got := selectionTextOf(Select(&test.service, external, parseEndpoints(t, "1* 2@node-2"), viewFrom(testNodes)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("selection (-want +got):\n%s", diff)
			}
		})
	}
}
