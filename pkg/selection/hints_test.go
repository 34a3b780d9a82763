package selection

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

type hintCase struct {
	labels    string // of this node, node-1
	endpoints string
	want      string
	tier      string
	reason    Reason
}

func TestHints(t *testing.T) {
	zoneHint := func(code Code) Reason { return Reason{Code: code, Key: TierForZones, Value: "a"} }
	cases := map[string]hintCase{
		// No reason to ignore hints.
		"hints for this zone": {
			"zone=a", "1(a) 2(b) 3(c) 4(a)", "1 4", TierForZones, zoneHint(HintedForThisZone),
		},
		"hints for this node": {
			"zone=a", "1[node-1] 2[node-2]", "1", TierForNodes, Reason{Code: HintedForThisNode, Key: TierForNodes, Value: "node-1"},
		},
		"hints for this node take precedence over hints for its zone": {
			"zone=a", "1(b)[node-1] 2(a)[node-2]", "1", TierForNodes, Reason{Code: HintedForThisNode, Key: TierForNodes, Value: "node-1"},
		},
		"hints for this node need no zone": {
			"", "1[node-1] 2[node-2]", "1", TierForNodes, Reason{Code: HintedForThisNode, Key: TierForNodes, Value: "node-1"},
		},
		"an endpoint's zone is not a hint": {
			"zone=a", "1/a 2/b", "1 2", TierAll, Reason{Code: AllEndpoints},
		},
		"an endpoint's hint takes precedence over its zone": {
			"zone=a", "1/b(a) 2/a(b)", "1", TierForZones, zoneHint(HintedForThisZone),
		},

		// Every reason for which kube-proxy ignores hints.
		"this node has no zone label": {
			"", "1(a) 2(b)", "1 2", TierAll, Reason{Code: NodeHasNoZone, Key: zone},
		},
		"this node's zone label is empty": {
			"zone=", "1(a) 2(b)", "1 2", TierAll, Reason{Code: NodeHasNoZone, Key: zone},
		},
		"a hint that names the empty zone is for nodes without a zone": {
			"", "1(_) 2(b)", "1", TierForZones, Reason{Code: HintedForThisZone, Key: TierForZones},
		},
		"one ready endpoint has no hint for zones": {
			"zone=a", "1(a) 2 3 4(a)", "1 2 3 4", TierAll, Reason{Code: HintsIncomplete, Key: TierForZones, Endpoint: addrOf("2")},
		},
		"one ready endpoint has no hint for nodes: hints for zones apply": {
			"zone=a", "1(a)[node-1] 2(b) 3(a)[node-3]", "1 3", TierForZones,
			Reason{Code: HintedForThisZoneNodeHintsIncomplete, Key: TierForZones, Value: "a", Endpoint: addrOf("2")},
		},
		"one ready endpoint has no hint for nodes, and none has one for zones": {
			"zone=a", "1[node-1] 2", "1 2", TierAll, Reason{Code: HintsIncomplete, Key: TierForNodes, Endpoint: addrOf("2")},
		},
		"all have hints for nodes, none for this one: hints for zones apply": {
			"zone=a", "2(a)[node-2] 3(b)[node-3]", "2", TierForZones, zoneHint(HintedForThisZoneNotNode),
		},
		"all have hints for nodes, none for this one, and none has one for zones": {
			"zone=a", "2[node-2] 3[node-3]", "2 3", TierAll, Reason{Code: NoHintForThisNode, Key: TierForNodes, Value: "node-1"},
		},
		"all have hints for zones, none for this one": {
			"zone=a", "2(b) 3(c)", "2 3", TierAll, zoneHint(NoHintForThisZone),
		},
		"all have hints of both kinds, none for this node or zone": {
			"zone=a", "2(b)[node-2] 3(c)[node-3]", "2 3", TierAll, zoneHint(NoHintForThisZone),
		},
		"an unready endpoint without a hint is irrelevant": {
			"zone=a", "1(a) 2! 3(b)", "1", TierForZones, zoneHint(HintedForThisZone),
		},
		"an unready endpoint's hint is irrelevant": {
			"zone=a", "1!(a) 2 3", "2 3", TierAll, Reason{Code: AllEndpoints},
		},
		"a terminating endpoint without a hint is irrelevant": {
			"zone=a", "1(a) 2t 3(b)", "1", TierForZones, zoneHint(HintedForThisZone),
		},
		"the endpoints hinted for this zone are all unready": {
			"zone=a", "1!(a) 2(b) 3(c) 4!(a)", "2 3", TierAll, zoneHint(NoHintForThisZone),
		},
		"the endpoints hinted for this zone are all terminating": {
			"zone=a", "1t(a) 2(b)", "2", TierAll, zoneHint(NoHintForThisZone),
		},
		"no endpoint is ready": {
			"zone=a", "1t(a) 2t(b) 3!(a)", "1 2", TierAll, Reason{Code: OnlyTerminating},
		},
		"endpoints hinted for several zones": {
			"zone=c", "1(a,b,c) 2(b,c) 3(b,d) 4(c)", "1 2 4", TierForZones, Reason{Code: HintedForThisZone, Key: TierForZones, Value: "c"},
		},
		"endpoints hinted for several nodes": {
			"zone=a", "1[node-3,node-1] 2[node-1] 3[node-2]", "1 2", TierForNodes,
			Reason{Code: HintedForThisNode, Key: TierForNodes, Value: "node-1"},
		},
		"no endpoint is usable": {
			"zone=a", "1!(a) 2x(b) 3s(a)", "", "", Reason{Code: NoUsableEndpoints},
		},
		"there is no endpoint": {
			"zone=a", "", "", "", Reason{Code: NoEndpoints},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			viewpoint := viewFrom(map[string]string{"node-1": test.labels})
			got := Select(&model.Service{}, false, parseEndpoints(t, test.endpoints), viewpoint).Cluster
			if diff := cmp.Diff(test.want, numbers(got.Endpoints)); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
			if got.Tier != test.tier || got.Reason != test.reason {
				t.Errorf("tier %q and reason %+v, want %q and %+v", got.Tier, got.Reason, test.tier, test.reason)
			}
		})
	}
}

func TestMissingHints(t *testing.T) {
	const set = "spec.trafficDistribution: PreferSameZone"
	for name, test := range map[string]struct {
		endpoints, setting, want string
		isHeadless               bool
	}{
		"no hint":                        {"1 2", set, "no EndpointSlice of the Service has hints.", false},
		"nothing is set":                 {"1 2", "", "", false},
		"hints for all zones":            {"1(a) 2(b)", set, "", false},
		"hints for all nodes":            {"1[node-1] 2[node-2]", set, "", false},
		"all zones and some nodes":       {"1(a)[node-1] 2(b)", set, "", false},
		"all nodes and some zones":       {"1(a)[node-1] 2[node-2]", set, "", false},
		"one has no hint for zones":      {"1(a) 2", set, "the ready endpoint " + addrOf("2").String() + " has no hint.", false},
		"one has no hint for nodes":      {"1[node-1] 2", set, "the ready endpoint " + addrOf("2").String() + " has no hint.", false},
		"only an unready one has a hint": {"1 2!(a)", set, "no EndpointSlice of the Service has hints.", false},
		"no endpoints":                   {"", set, "", false},
		"a headless Service":             {"1 2", set, "", true},
	} {
		service := &model.Service{IsHeadless: test.isHeadless}
		service.Topology.HintsSetting = test.setting
		want := test.want
		if want != "" {
			want = set + " is set, and has no effect, because " + want
		}
		if got := MissingHints(service, parseEndpoints(t, test.endpoints)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
