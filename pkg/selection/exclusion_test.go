package selection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func TestExclusions(t *testing.T) {
	unready := Reason{Code: NotReady}
	notNeeded := Reason{Code: TerminatingNotNeeded}
	elsewhere := Reason{Code: NotOnThisNode, Key: "internalTrafficPolicy"}
	other := func(key, value string) Reason { return Reason{Code: OtherTopologyValue, Key: key, Value: value} }
	hinted := func(kind, places string) Reason { return Reason{Code: HintedElsewhere, Key: kind, Value: places} }
	tests := map[string]struct {
		service   model.Service
		endpoints string
		want      map[string]Reason // by the endpoint's number
	}{
		"none, if all endpoints are used": {
			model.Service{}, "1* 2@node-2", nil,
		},
		"endpoints that are not ready": {
			model.Service{}, "1! 2s 3x 4", map[string]Reason{"1": unready, "2": unready, "3": unready},
		},
		"terminating endpoints, because ready ones exist": {
			model.Service{}, "1t 2", map[string]Reason{"1": notNeeded},
		},
		"unready endpoints, while terminating ones serve": {
			model.Service{}, "1t 2!", map[string]Reason{"2": unready},
		},
		"endpoints outside the tier, each for its own reason": {
			withKeys(model.Service{}, "rack"), "1* 2@node-2 4t@node-1 5@node-5 6! 7 9@node-9", map[string]Reason{
				"2": other(rack, "2"),
				"4": notNeeded,
				"5": {Code: EndpointHasNoTopologyLabel, Key: rack, Value: "node-5"},
				"6": unready,
				"7": {Code: EndpointHasNoNode, Key: rack},
				"9": {Code: EndpointNodeUnknown, Key: rack, Value: "node-9"},
			},
		},
		"endpoints on other nodes, if the hostname won": {
			withKeys(model.Service{}, "hostname zone *"), "1* 2@node-2 3", map[string]Reason{
				"2": other(hostname, "node-2"), "3": {Code: EndpointHasNoNode, Key: hostname},
			},
		},
		"endpoints in other zones according to the slice": {
			withKeys(model.Service{}, "zone"), "1* 2@node-2/b", map[string]Reason{"2": other(zone, "b")},
		},
		"ready endpoints in other zones, if terminating ones won": {
			withKeys(model.Service{}, "zone"), "1t* 3@node-3 4t@node-4", map[string]Reason{"3": other(zone, "b"), "4": other(zone, "c")},
		},
		"all endpoints, if no key matched": {
			withKeys(model.Service{}, "hostname zone"), "3@node-3 4t@node-4 5!*", map[string]Reason{
				"3": other(zone, "b"), "4": other(zone, "c"), "5": unready,
			},
		},
		"all endpoints, if this node has no such label": {
			withKeys(model.Service{}, "example.com/row"), "1* 2t@node-2", map[string]Reason{
				"1": {Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
				"2": {Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
			},
		},
		"endpoints hinted for other zones": {
			model.Service{}, "1(a) 2(b,c) 3t(a)", map[string]Reason{"2": hinted(TierForZones, "b, c"), "3": notNeeded},
		},
		"endpoints hinted for other zones, if hints for nodes do not name this node": {
			model.Service{}, "2(a)[node-2] 3(b)[node-3]", map[string]Reason{"3": hinted(TierForZones, "b")},
		},
		"endpoints hinted for other zones, if hints for nodes are incomplete": {
			model.Service{}, "2(a)[node-1] 3(b)", map[string]Reason{"3": hinted(TierForZones, "b")},
		},
		"endpoints hinted for other nodes": {
			model.Service{}, "1[node-1] 2(a)[node-2]", map[string]Reason{"2": hinted(TierForNodes, "node-2")},
		},
		"endpoints on other nodes, if all traffic stays on this node": {
			internalLocal, "1* 2@node-2 3t* 4 5!*", map[string]Reason{"2": elsewhere, "3": notNeeded, "4": elsewhere, "5": unready},
		},
		"only endpoints that neither choice contains": {
			externalLocal, "1*(b) 2@node-2(a) 3@node-3(b)", map[string]Reason{"3": hinted(TierForZones, "b")},
		},
		"not a terminating endpoint in the local choice": {
			externalLocal, "1@node-2 3t* 4t@node-3", map[string]Reason{"4": notNeeded},
		},
		"endpoints on other nodes: none, if they serve the external frontends": {
			exposed(internalLocal), "1* 2@node-2", nil,
		},
		"endpoints on other nodes, excluded by hints for external frontends, not by the policy of the ClusterIP": {
			exposed(internalLocal), "1*(b) 2@node-2(a) 3@node-3(b)", map[string]Reason{"3": hinted(TierForZones, "b")},
		},
		"endpoints on other nodes, excluded by keys for external frontends, not by the policy of the ClusterIP": {
			withKeys(exposed(internalLocal), "zone"), "1* 3@node-3 4t@node-2", map[string]Reason{"3": other(zone, "b"), "4": notNeeded},
		},
		"endpoints on other nodes, excluded by hints for pods, if both policies are Local": {
			bothLocal, "1*(a) 3@node-3(b)", map[string]Reason{"3": hinted(TierForZones, "b")},
		},
		"endpoints on other nodes, if this node lacks the label and only the local choice has endpoints": {
			withKeys(externalLocal, "example.com/row"), "1* 2@node-2", map[string]Reason{
				"2": {Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
			},
		},
		"terminating endpoints on this node, because of ready ones there, not because of keys": {
			withKeys(externalLocal, "example.com/row"), "1* 3t*", map[string]Reason{"3": notNeeded},
		},
		"terminating endpoints on this node, because of ready ones there, not because of their zone": {
			withKeys(exposed(internalLocal), "zone"), "1*/b 3t*/b 5!*", map[string]Reason{"3": notNeeded, "5": unready},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			endpoints, viewpoint := parseEndpoints(t, test.endpoints), viewFrom(testNodes)
			var want []Exclusion
			for _, endpoint := range endpoints {
				if reason, ok := test.want[numbers([]model.PortEndpoint{endpoint})]; ok {
					want = append(want, Exclusion{Endpoint: endpoint.Addr, Reason: reason})
				}
			}
			got := Decision{Viewpoint: viewpoint, Endpoints: endpoints, Selection: choose(&test.service, endpoints, viewpoint)}.Exclusions()
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(Exclusion{})); diff != "" {
				t.Errorf("exclusions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDuplicatesInAChoiceDoNotChangeExclusions: duplicates in a choice do not change the exclusions.
func TestDuplicatesInAChoiceDoNotChangeExclusions(t *testing.T) {
	endpoints, viewpoint := parseEndpoints(t, "1* 2* 3@node-2 4@node-2 5!*"), viewFrom(testNodes)
	selection := choose(&externalLocal, endpoints, viewpoint)
	selection.Cluster.Endpoints = parseEndpoints(t, "2* 2* 3@node-2 2* 3@node-2")
	selection.Local.Endpoints = parseEndpoints(t, "1* 1* 2*")
	var excluded []model.PortEndpoint
	for _, exclusion := range (Decision{Viewpoint: viewpoint, Endpoints: endpoints, Selection: selection}).Exclusions() {
		excluded = append(excluded, model.PortEndpoint{Addr: exclusion.Endpoint})
	}
	if got := numbers(excluded); got != "4 5" {
		t.Errorf("%s are excluded, want 4 5", got)
	}
}
