package selection

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// selectionText is a Selection in the notation of kube-proxy's tests. "-" is a choice that is not computed.
// HasUsableEndpoint is kube-proxy's hasAny.
type selectionText struct {
	Cluster, Local    string
	HasUsableEndpoint bool
}

func selectionTextOf(selection Selection) selectionText {
	got := selectionText{Cluster: numbers(selection.Cluster.Endpoints), Local: "-", HasUsableEndpoint: selection.HasUsableEndpoint}
	if selection.Cluster.Reason.Code == ClusterChoiceUnused {
		got.Cluster = "-"
	}
	if selection.Local != nil {
		got.Local = numbers(selection.Local.Endpoints)
	}
	return got
}

// These are the cases that kube-proxy v1.37 asserts in its topology tests. The node is node-1 in zone a unless a case
// sets another.
func TestKubeProxysReferenceCases(t *testing.T) {
	internal, outside := model.Service{InternalTrafficLocal: true}, model.Service{ExternalTrafficLocal: true}
	both := model.Service{InternalTrafficLocal: true, ExternalTrafficLocal: true}
	const hinted = "1*(a) 2*(b) 3(c) 4(a)"
	const nodeHinted = "1(a)[node-1] 2(b)[node-2] 3(c)[node-3] 4(a)[node-4]"
	zoneA := map[string]string{"zone": "a"}
	// The columns are kube-proxy's C, L and hasAny, and the endpoints that it calls reachable.
	tests := map[string]struct {
		service   model.Service
		external  bool // the port has a node port
		node      string
		labels    map[string]string
		endpoints string
		want      selectionText
		reachable string // the endpoints in either choice
	}{
		"1: hints for this zone": {
			labels: zoneA, endpoints: "1(a) 2(b) 3(c) 4(a)", want: selectionText{"1 4", "-", true}, reachable: "1 4",
		},
		"2: externalTrafficPolicy: Local ignores hints": {
			service: outside, external: true,
			labels: zoneA, endpoints: hinted, want: selectionText{"1 4", "1 2", true}, reachable: "1 2 4",
		},
		"3: internalTrafficPolicy: Local ignores hints": {
			service: internal, external: true,
			labels: zoneA, endpoints: hinted, want: selectionText{"1 4", "1 2", true}, reachable: "1 2 4",
		},
		"4: without a zone label, hints are ignored": {
			endpoints: "1(a)", want: selectionText{"1", "-", true}, reachable: "1",
		},
		"4: with an empty zone label, hints are ignored": {
			labels: map[string]string{"zone": ""}, endpoints: "1(a)", want: selectionText{"1", "-", true}, reachable: "1",
		},
		"5: in a zone that no hint names, hints are ignored": {
			labels: map[string]string{"zone": "b"}, endpoints: "1(a)", want: selectionText{"1", "-", true}, reachable: "1",
		},
		"6: an unready endpoint is not used": {
			labels: zoneA, endpoints: "1(a) 2(b) 3(c) 4!(a)", want: selectionText{"1", "-", true}, reachable: "1",
		},
		"7: a zone with only unready endpoints": {
			labels: zoneA, endpoints: "1!(a) 2(b) 3(c) 4!(a)", want: selectionText{"2 3", "-", true}, reachable: "2 3",
		},
		"8: one missing hint: all are ignored": {
			labels: zoneA, endpoints: "1(a) 2(b) 3 4(a)", want: selectionText{"1 2 3 4", "-", true}, reachable: "1 2 3 4",
		},
		"9: an endpoint may be hinted for several zones": {
			labels: map[string]string{"zone": "c"}, endpoints: "1(a,b,c) 2(b,c) 3(b,d) 4(c)", want: selectionText{"1 2 4", "-", true},
			reachable: "1 2 4",
		},
		"10: hints for this node take precedence over hints for its zone": {
			labels: zoneA, endpoints: nodeHinted, want: selectionText{"1", "-", true}, reachable: "1",
		},
		"11: one endpoint without any hint: all are ignored": {
			labels: zoneA, endpoints: "1(a)[node-1] 2 3(c)[node-3] 4(a)[node-4]", want: selectionText{"1 2 3 4", "-", true}, reachable: "1 2 3 4",
		},
		"12: without a hint for this node, hints for zones apply": {
			node: "node-0", labels: zoneA, endpoints: nodeHinted, want: selectionText{"1 4", "-", true}, reachable: "1 4",
		},
		"13: internalTrafficPolicy: Local with only remote endpoints": {
			service: internal,
			labels:  zoneA, endpoints: "1@node-2 2@node-3", want: selectionText{"-", "", true}, reachable: "",
		},
		"14: both policies Local, remote terminating endpoints serve the cluster": {
			service: both, external: true,
			labels: zoneA, endpoints: "1t@node-2 2t@node-3", want: selectionText{"1 2", "", true}, reachable: "1 2",
		},
		"15: each choice decides for itself whether it needs terminating endpoints": {
			service: outside, external: true,
			labels: zoneA, endpoints: "1@node-2 2!* 3t* 4t@node-3", want: selectionText{"1", "3", true}, reachable: "1 3",
		},
		"16: externalTrafficPolicy: Local without an external address needs no local choice": {
			service: outside,
			labels:  zoneA, endpoints: "1@node-2 2*", want: selectionText{"1 2", "-", true}, reachable: "1 2",
		},
		"17: an endpoint that is neither ready nor serving is unusable": {
			labels: zoneA, endpoints: "1!", want: selectionText{"", "-", false}, reachable: "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			viewpoint := NodeView{Node: model.Node{Name: "node-1", Labels: map[string]string{}}}
			if test.node != "" {
				viewpoint.Node.Name = test.node
			}
			if value, ok := test.labels["zone"]; ok {
				viewpoint.Node.Labels[zone] = value
			}
			endpoints := parseEndpoints(t, test.endpoints)
			selection := Select(&test.service, test.external, endpoints, viewpoint)
			if diff := cmp.Diff(test.want, selectionTextOf(selection)); diff != "" {
				t.Errorf("selection (-want +got):\n%s", diff)
			}
			decision := Decision{Viewpoint: viewpoint, Service: &test.service, Endpoints: endpoints, Selection: selection}
			checkTierOrder(t, decision)
			excluded := decision.Exclusions()
			reached := filter(endpoints, func(endpoint model.PortEndpoint) bool {
				return !slices.ContainsFunc(excluded, func(exclusion Exclusion) bool { return exclusion.Endpoint == endpoint.Addr })
			})
			if got := numbers(reached); got != test.reachable {
				t.Errorf("reachable endpoints %q, want %q", got, test.reachable)
			}
		})
	}
}
