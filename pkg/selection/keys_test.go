package selection

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

const (
	hostname = string(policy.Hostname)
	zone     = string(policy.Zone)
	region   = "topology.kubernetes.io/region"
	rack     = "example.com/rack"
)

// node-1 is this node; node-9 does not exist. node-3 shares node-1's rack although it is in another zone.
var testNodes = map[string]string{
	"node-1": "zone=a region=x rack=1 empty=",
	"node-2": "zone=a region=x rack=2 empty=",
	"node-3": "zone=b region=x rack=1 empty=full",
	"node-4": "zone=c region=y rack=3",
	"node-5": "",
}

type keyCase struct {
	keys      string
	endpoints string
	want      string
	reason    Reason
}

func runKeyCases(t *testing.T, nodes map[string]string, cases map[string]keyCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			service := &model.Service{Topology: policy.Topology{Keys: parseKeys(test.keys)}}
			got := Select(service, false, parseEndpoints(t, test.endpoints), viewFrom(nodes)).Cluster
			if diff := cmp.Diff(test.want, numbers(got.Endpoints)); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
			if got.Reason != test.reason {
				t.Errorf("reason is %+v, want %+v", got.Reason, test.reason)
			}
			wantTier := ""
			if test.want != "" && test.keys == "" {
				wantTier = TierAll
			} else if test.want != "" {
				wantTier = test.reason.Key
			}
			if got.Tier != wantTier {
				t.Errorf("tier is %q, want %q", got.Tier, wantTier)
			}
		})
	}
}

func matched(key, value string) Reason {
	return Reason{Code: MatchedTopologyKey, Key: key, Value: value}
}

func noMatch(key, value string) Reason { return Reason{Code: NoTopologyMatch, Key: key, Value: value} }

func TestNoKeys(t *testing.T) {
	all := Reason{Code: AllEndpoints}
	runKeyCases(t, testNodes, map[string]keyCase{
		"endpoints on all nodes are used":           {"", "1* 2@node-2 3@node-3 4@node-4", "1 2 3 4", all},
		"endpoints only on other nodes are used":    {"", "4@node-4", "4", all},
		"an endpoint on an unknown node is used":    {"", "1* 9@node-9", "1 9", all},
		"an endpoint without a node is used":        {"", "1* 2", "1 2", all},
		"an endpoint on an unlabelled node is used": {"", "1* 5@node-5", "1 5", all},
		"no endpoints": {"", "", "", Reason{Code: NoEndpoints}},
	})
}

func TestOneHardKey(t *testing.T) {
	runKeyCases(t, testNodes, map[string]keyCase{
		"zone: all endpoints match":                          {"zone", "1* 2@node-2", "1 2", matched(zone, "a")},
		"zone: some endpoints match":                         {"zone", "1* 2@node-2 3@node-3 4@node-4", "1 2", matched(zone, "a")},
		"zone: no endpoint matches":                          {"zone", "3@node-3 4@node-4", "", noMatch(zone, "a")},
		"zone: an unknown node never matches":                {"zone", "1* 9@node-9", "1", matched(zone, "a")},
		"zone: only unknown nodes":                           {"zone", "9@node-9", "", noMatch(zone, "a")},
		"zone: a node without the label never matches":       {"zone", "2@node-2 5@node-5", "2", matched(zone, "a")},
		"zone: an endpoint without a node never matches":     {"zone", "1* 2", "1", matched(zone, "a")},
		"hostname: all endpoints match":                      {"hostname", "1* 2*", "1 2", matched(hostname, "node-1")},
		"hostname: some endpoints match":                     {"hostname", "1* 2@node-2", "1", matched(hostname, "node-1")},
		"hostname: no endpoint matches":                      {"hostname", "2@node-2 3@node-3", "", noMatch(hostname, "node-1")},
		"hostname: an endpoint without a node never matches": {"hostname", "2", "", noMatch(hostname, "node-1")},
		"region: endpoints in several zones match":           {"region", "1* 3@node-3 4@node-4", "1 3", matched(region, "x")},
		"region: no endpoint matches":                        {"region", "4@node-4", "", noMatch(region, "x")},
		"another label: it may cross zones":                  {"rack", "1* 2@node-2 3@node-3", "1 3", matched(rack, "1")},
		"another label: a node without it never matches":     {"rack", "1* 5@node-5", "1", matched(rack, "1")},
		"another label: the endpoint's zone is irrelevant":   {"rack", "2@node-2/1 3@node-3", "3", matched(rack, "1")},
		"an empty value matches an empty value":              {"empty", "1* 2@node-2 3@node-3", "1 2", matched("empty", "")},
		"an empty value does not match a missing label":      {"empty", "4@node-4 5@node-5", "", noMatch("empty", "")},
		"this node has no such label": {
			"example.com/row", "1* 2@node-2", "", Reason{Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
		},
		"no endpoints": {"zone", "", "", Reason{Code: NoEndpoints}},
	})
}

func TestOnlyAnyNode(t *testing.T) {
	anyNode := Reason{Code: MatchedAnyNode, Key: "*"}
	runKeyCases(t, testNodes, map[string]keyCase{
		"endpoints on all nodes are used":           {"*", "1* 2@node-2 3@node-3 4@node-4", "1 2 3 4", anyNode},
		"endpoints only on other nodes are used":    {"*", "4@node-4", "4", anyNode},
		"unknown nodes, missing labels and no node": {"*", "2 5@node-5 9@node-9", "2 5 9", anyNode},
		"hints are ignored":                         {"*", "1*(a)[node-1] 3@node-3(b)[node-3]", "1 3", anyNode},
		"no endpoints":                              {"*", "", "", Reason{Code: NoEndpoints}},
		"unusable endpoints":                        {"*", "1!* 2x@node-2", "", Reason{Code: NoUsableEndpoints}},
	})
}

func TestSeveralHardKeys(t *testing.T) {
	runKeyCases(t, testNodes, map[string]keyCase{
		"the first key wins if it matches": {
			"hostname zone region", "1* 2@node-2 3@node-3 4@node-4", "1", matched(hostname, "node-1"),
		},
		"the second wins if the first does not match": {
			"hostname zone region", "2@node-2 3@node-3 4@node-4", "2", matched(zone, "a"),
		},
		"the last wins if no earlier one matches": {
			"hostname zone region", "3@node-3 4@node-4", "3", matched(region, "x"),
		},
		"no key matches": {
			"hostname zone region", "4@node-4", "", noMatch(region, "x"),
		},
		"all endpoints match the first key": {
			"zone hostname", "1* 2@node-2", "1 2", matched(zone, "a"),
		},
		"the owner's order counts, even from wide to narrow": {
			"region hostname", "1* 3@node-3", "1 3", matched(region, "x"),
		},
		"keys are alternatives and are never combined": {
			"rack zone", "1* 2@node-2 3@node-3", "1 3", matched(rack, "1"),
		},
		"a key for which this node has no label is skipped": {
			"example.com/row zone", "1* 2@node-2 3@node-3", "1 2", matched(zone, "a"),
		},
		"a key for which no endpoint's node has a label is skipped": {
			"rack region", "3@node-5/b 5@node-5 2@node-2", "2", matched(region, "x"),
		},
		"unknown nodes never match": {
			"hostname zone", "9@node-9", "", noMatch(zone, "a"),
		},
		"this node has no label for the last key": {
			"hostname example.com/row", "2@node-2", "", Reason{Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
		},
		"an arbitrary label after the zone": {
			"zone rack", "3@node-3 4@node-4", "3", matched(rack, "1"),
		},
	})
}

func TestSeveralKeysAndAnyNode(t *testing.T) {
	anyNode := Reason{Code: MatchedAnyNode, Key: "*"}
	runKeyCases(t, testNodes, map[string]keyCase{
		"the first key wins if it matches":                  {"hostname zone *", "1* 2@node-2 4@node-4", "1", matched(hostname, "node-1")},
		"the second wins if the first does not match":       {"hostname zone *", "2@node-2 4@node-4", "2", matched(zone, "a")},
		"all are used if no key matches":                    {"hostname zone *", "3@node-3 4@node-4", "3 4", anyNode},
		"unknown nodes are used if no key matches":          {"hostname zone *", "4@node-4 9@node-9", "4 9", anyNode},
		"unknown nodes are not used if a key matches":       {"hostname zone *", "2@node-2 9@node-9", "2", matched(zone, "a")},
		"nodes without the label are used if none matches":  {"rack *", "2@node-2 5@node-5", "2 5", anyNode},
		"endpoints without a node are used if none matches": {"hostname *", "2 3", "2 3", anyNode},
		"all endpoints match":                               {"zone *", "1* 2@node-2", "1 2", matched(zone, "a")},
		"another label":                                     {"rack *", "1* 2@node-2 3@node-3", "1 3", matched(rack, "1")},
		"the region before everything":                      {"zone region *", "3@node-3 4@node-4", "3", matched(region, "x")},
		"a key for which this node has no label":            {"example.com/row *", "1* 4@node-4", "1 4", anyNode},
	})
}

func TestKeysAndReadiness(t *testing.T) {
	terminating := func(key, value string) Reason {
		return Reason{Code: MatchedTopologyKeyTerminating, Key: key, Value: value}
	}
	runKeyCases(t, testNodes, map[string]keyCase{
		"an unready endpoint does not match": {
			"hostname zone *", "1!* 2@node-2 4@node-4", "2", matched(zone, "a"),
		},
		"an endpoint that serves but is neither ready nor terminating does not match": {
			"hostname *", "1s* 2@node-2", "2", Reason{Code: MatchedAnyNode, Key: "*"},
		},
		"an endpoint that is terminating and no longer serves does not match": {
			"hostname *", "1x* 2@node-2", "2", Reason{Code: MatchedAnyNode, Key: "*"},
		},
		"a ready endpoint of a later key is preferred to a terminating one": {
			"hostname zone", "1t* 2@node-2", "2", matched(zone, "a"),
		},
		"a ready endpoint that only * matches is preferred to a terminating one": {
			"hostname *", "1t* 4@node-4", "4", Reason{Code: MatchedAnyNode, Key: "*"},
		},
		"terminating endpoints are not used together with ready ones": {
			"zone", "1t* 2@node-2", "2", matched(zone, "a"),
		},
		"an endpoint that is ready while it terminates is ready": {
			"zone", "1r* 2@node-2", "1 2", matched(zone, "a"),
		},
		"without ready endpoints, the keys apply to terminating ones": {
			"hostname zone", "1t* 2t@node-2 4t@node-4", "1", terminating(hostname, "node-1"),
		},
		"without ready endpoints, the keys apply in their order": {
			"hostname zone", "2t@node-2 4t@node-4", "2", terminating(zone, "a"),
		},
		"hostname alone behaves like a Local policy": {
			"hostname", "1t* 2@node-2", "1", terminating(hostname, "node-1"),
		},
		"without ready endpoints, * matches all terminating ones": {
			"hostname *", "2t@node-2 4t@node-4 3!@node-3", "2 4", Reason{Code: MatchedAnyNodeTerminating, Key: "*"},
		},
		"terminating endpoints on other nodes do not match": {
			"hostname", "2t@node-2", "", noMatch(hostname, "node-1"),
		},
		"no usable endpoints": {
			"hostname", "1!* 2s@node-2", "", Reason{Code: NoUsableEndpoints},
		},
	})
}

func TestZoneOfAnEndpoint(t *testing.T) {
	runKeyCases(t, testNodes, map[string]keyCase{
		"the slice's zone takes precedence over the node's": {"zone", "2@node-2/b 3@node-3/a", "3", matched(zone, "a")},
		"the slice's zone applies to an unknown node":       {"zone", "9@node-9/a", "9", matched(zone, "a")},
		"the slice's zone applies without a node":           {"zone", "2/a", "2", matched(zone, "a")},
		"the node's label applies if the slice has no zone": {"zone", "2@node-2 3@node-3", "2", matched(zone, "a")},
		"this node's label applies to its endpoints":        {"zone", "1*", "1", matched(zone, "a")},
		"the slice's zone is not a hostname":                {"hostname", "2@node-2/a", "", noMatch(hostname, "node-1")},
		"the slice's zone is not a region":                  {"region", "9@node-9/x", "", noMatch(region, "x")},
	})
	runKeyCases(t, map[string]string{"node-1": "zone=", "node-2": "zone=", "node-3": ""}, map[string]keyCase{
		"an empty zone label matches another empty label":         {"zone", "2@node-2 3@node-3", "2", matched(zone, "")},
		"an empty zone in the slice is unknown and never matches": {"zone", "2", "", noMatch(zone, "")},
	})
}

func TestUnknownNode(t *testing.T) {
	runKeyCases(t, nil, map[string]keyCase{
		"its hostname is its name": {"hostname zone", "1* 2@node-2/a", "1", matched(hostname, "node-1")},
		"it has no labels":         {"zone", "1*/a 2@node-2/a", "", Reason{Code: NodeHasNoTopologyLabel, Key: zone}},
		"* matches all endpoints":  {"zone *", "1*/a 2@node-2/a", "1 2", Reason{Code: MatchedAnyNode, Key: "*"}},
		"no keys: all endpoints":   {"", "1*/a 2@node-2/a", "1 2", Reason{Code: AllEndpoints}},
	})
	service := &model.Service{Topology: policy.Topology{Keys: []policy.Key{rack}}}
	viewpoint := NodeView{Node: model.Node{Name: "node-1", Labels: map[string]string{rack: "1"}}}
	got := Select(service, false, parseEndpoints(t, "1* 2@node-2"), viewpoint).Cluster
	if want := "1"; numbers(got.Endpoints) != want {
		t.Errorf("without other nodes' labels, endpoints are %q, want %q", numbers(got.Endpoints), want)
	}
}

// TestKeysThatNeedNoNode: an EndpointSlice alone resolves exactly the keys for which
// NeedsNode is false.
func TestKeysThatNeedNoNode(t *testing.T) {
	endpoint, view := parseEndpoints(t, "1@node-2/a")[0], NodeView{Node: model.Node{Name: "node-1"}}
	for _, key := range []policy.Key{policy.AnyNode, policy.Hostname, policy.Zone, policy.Region, policy.Key(rack)} {
		value, _ := view.ValueOf(&endpoint, key)
		if got := view.matches(&endpoint, key, value); got == key.NeedsNode() {
			t.Errorf("%s: the EndpointSlice alone resolves the key: %v, but NeedsNode returned %v", key, got, key.NeedsNode())
		}
	}
}
