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
var fleet = map[string]string{
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
				t.Errorf("endpoints differ (-want +got):\n%s", diff)
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
	runKeyCases(t, fleet, map[string]keyCase{
		"endpoints everywhere are all used":        {"", "1* 2@node-2 3@node-3 4@node-4", "1 2 3 4", all},
		"endpoints only elsewhere are all used":    {"", "4@node-4", "4", all},
		"an endpoint on an unknown node is used":   {"", "1* 9@node-9", "1 9", all},
		"an endpoint on no node is used":           {"", "1* 2", "1 2", all},
		"an endpoint on an unlabelled node counts": {"", "1* 5@node-5", "1 5", all},
		"no endpoints give none":                   {"", "", "", Reason{Code: NoEndpoints}},
	})
}

func TestOneHardKey(t *testing.T) {
	runKeyCases(t, fleet, map[string]keyCase{
		"zone: all endpoints are in the zone":                {"zone", "1* 2@node-2", "1 2", matched(zone, "a")},
		"zone: some are":                                     {"zone", "1* 2@node-2 3@node-3 4@node-4", "1 2", matched(zone, "a")},
		"zone: none is":                                      {"zone", "3@node-3 4@node-4", "", noMatch(zone, "a")},
		"zone: an unknown node never matches":                {"zone", "1* 9@node-9", "1", matched(zone, "a")},
		"zone: only unknown nodes are no match":              {"zone", "9@node-9", "", noMatch(zone, "a")},
		"zone: a node without the label never matches":       {"zone", "2@node-2 5@node-5", "2", matched(zone, "a")},
		"zone: an endpoint without a node never matches":     {"zone", "1* 2", "1", matched(zone, "a")},
		"hostname: all endpoints are here":                   {"hostname", "1* 2*", "1 2", matched(hostname, "node-1")},
		"hostname: some are":                                 {"hostname", "1* 2@node-2", "1", matched(hostname, "node-1")},
		"hostname: none is":                                  {"hostname", "2@node-2 3@node-3", "", noMatch(hostname, "node-1")},
		"hostname: an endpoint without a node is not here":   {"hostname", "2", "", noMatch(hostname, "node-1")},
		"region: it spans zones":                             {"region", "1* 3@node-3 4@node-4", "1 3", matched(region, "x")},
		"region: none in it":                                 {"region", "4@node-4", "", noMatch(region, "x")},
		"an arbitrary label: it need not nest in zones":      {"rack", "1* 2@node-2 3@node-3", "1 3", matched(rack, "1")},
		"an arbitrary label: a node without it never counts": {"rack", "1* 5@node-5", "1", matched(rack, "1")},
		"an arbitrary label: the endpoint's zone is no rack": {"rack", "2@node-2/1 3@node-3", "3", matched(rack, "1")},
		"an empty value matches an empty value":              {"empty", "1* 2@node-2 3@node-3", "1 2", matched("empty", "")},
		"an empty value does not match a missing label":      {"empty", "4@node-4 5@node-5", "", noMatch("empty", "")},
		"this node has no such label": {
			"example.com/row", "1* 2@node-2", "", Reason{Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
		},
		"no endpoints give none, whatever the key": {"zone", "", "", Reason{Code: NoEndpoints}},
	})
}

func TestOnlyTheKeyThatMatchesAll(t *testing.T) {
	anyNode := Reason{Code: MatchedAnyNode, Key: "*"}
	runKeyCases(t, fleet, map[string]keyCase{
		"endpoints everywhere are all used":             {"*", "1* 2@node-2 3@node-3 4@node-4", "1 2 3 4", anyNode},
		"endpoints only elsewhere are all used":         {"*", "4@node-4", "4", anyNode},
		"unknown nodes, missing labels and no node too": {"*", "2 5@node-5 9@node-9", "2 5 9", anyNode},
		"hints are not looked at":                       {"*", "1*(a)[node-1] 3@node-3(b)[node-3]", "1 3", anyNode},
		"no endpoints give none":                        {"*", "", "", Reason{Code: NoEndpoints}},
		"unusable endpoints give none":                  {"*", "1!* 2x@node-2", "", Reason{Code: NoUsableEndpoints}},
	})
}

func TestSeveralHardKeys(t *testing.T) {
	runKeyCases(t, fleet, map[string]keyCase{
		"the first key wins where it matches": {
			"hostname zone region", "1* 2@node-2 3@node-3 4@node-4", "1", matched(hostname, "node-1"),
		},
		"the second wins where the first does not match": {
			"hostname zone region", "2@node-2 3@node-3 4@node-4", "2", matched(zone, "a"),
		},
		"the last wins where nothing narrower matches": {
			"hostname zone region", "3@node-3 4@node-4", "3", matched(region, "x"),
		},
		"no key matches": {
			"hostname zone region", "4@node-4", "", noMatch(region, "x"),
		},
		"all endpoints match the first key": {
			"zone hostname", "1* 2@node-2", "1 2", matched(zone, "a"),
		},
		"the order is the owner's, even where it widens first": {
			"region hostname", "1* 3@node-3", "1 3", matched(region, "x"),
		},
		"keys are alternatives and are never added up": {
			"rack zone", "1* 2@node-2 3@node-3", "1 3", matched(rack, "1"),
		},
		"a key that this node does not carry is passed over": {
			"example.com/row zone", "1* 2@node-2 3@node-3", "1 2", matched(zone, "a"),
		},
		"a key that no endpoint's node carries is passed over": {
			"rack region", "3@node-5/b 5@node-5 2@node-2", "2", matched(region, "x"),
		},
		"unknown nodes match nothing": {
			"hostname zone", "9@node-9", "", noMatch(zone, "a"),
		},
		"the last key is one that this node does not carry": {
			"hostname example.com/row", "2@node-2", "", Reason{Code: NodeHasNoTopologyLabel, Key: "example.com/row"},
		},
		"an arbitrary label after the zone": {
			"zone rack", "3@node-3 4@node-4", "3", matched(rack, "1"),
		},
	})
}

func TestSeveralKeysAndTheOneThatMatchesAll(t *testing.T) {
	anyNode := Reason{Code: MatchedAnyNode, Key: "*"}
	runKeyCases(t, fleet, map[string]keyCase{
		"the first key wins where it matches":             {"hostname zone *", "1* 2@node-2 4@node-4", "1", matched(hostname, "node-1")},
		"the second wins where the first does not match":  {"hostname zone *", "2@node-2 4@node-4", "2", matched(zone, "a")},
		"everything is used where no key matches":         {"hostname zone *", "3@node-3 4@node-4", "3 4", anyNode},
		"unknown nodes are used where no key matches":     {"hostname zone *", "4@node-4 9@node-9", "4 9", anyNode},
		"unknown nodes are not used where a key matches":  {"hostname zone *", "2@node-2 9@node-9", "2", matched(zone, "a")},
		"nodes without the label are used when none does": {"rack *", "2@node-2 5@node-5", "2 5", anyNode},
		"endpoints without a node are used then, too":     {"hostname *", "2 3", "2 3", anyNode},
		"all in the tier":                       {"zone *", "1* 2@node-2", "1 2", matched(zone, "a")},
		"an arbitrary label":                    {"rack *", "1* 2@node-2 3@node-3", "1 3", matched(rack, "1")},
		"the region before everything":          {"zone region *", "3@node-3 4@node-4", "3", matched(region, "x")},
		"a label that this node does not carry": {"example.com/row *", "1* 4@node-4", "1 4", anyNode},
	})
}

func TestKeysAndReadiness(t *testing.T) {
	terminating := func(key, value string) Reason {
		return Reason{Code: MatchedTopologyKeyTerminating, Key: key, Value: value}
	}
	runKeyCases(t, fleet, map[string]keyCase{
		"an unready endpoint does not hold its tier": {
			"hostname zone *", "1!* 2@node-2 4@node-4", "2", matched(zone, "a"),
		},
		"an endpoint that serves but is neither ready nor terminating does not either": {
			"hostname *", "1s* 2@node-2", "2", Reason{Code: MatchedAnyNode, Key: "*"},
		},
		"one that terminated does not either": {
			"hostname *", "1x* 2@node-2", "2", Reason{Code: MatchedAnyNode, Key: "*"},
		},
		"a terminating endpoint gives way to a ready one in a wider tier": {
			"hostname zone", "1t* 2@node-2", "2", matched(zone, "a"),
		},
		"a terminating endpoint gives way to a ready one that only * matches": {
			"hostname *", "1t* 4@node-4", "4", Reason{Code: MatchedAnyNode, Key: "*"},
		},
		"terminating endpoints are not used beside ready ones in the tier": {
			"zone", "1t* 2@node-2", "2", matched(zone, "a"),
		},
		"an endpoint that is ready while it terminates is ready": {
			"zone", "1r* 2@node-2", "1 2", matched(zone, "a"),
		},
		"with no ready endpoint, keys are tried among the terminating": {
			"hostname zone", "1t* 2t@node-2 4t@node-4", "1", terminating(hostname, "node-1"),
		},
		"and in their order": {
			"hostname zone", "2t@node-2 4t@node-4", "2", terminating(zone, "a"),
		},
		"hostname alone behaves as a Local policy does": {
			"hostname", "1t* 2@node-2", "1", terminating(hostname, "node-1"),
		},
		"and with * all terminating ones are used": {
			"hostname *", "2t@node-2 4t@node-4 3!@node-3", "2 4", Reason{Code: MatchedAnyNodeTerminating, Key: "*"},
		},
		"terminating ones elsewhere are no match": {
			"hostname", "2t@node-2", "", noMatch(hostname, "node-1"),
		},
		"nothing usable is nothing to match": {
			"hostname", "1!* 2s@node-2", "", Reason{Code: NoUsableEndpoints},
		},
	})
}

func TestWhatAnEndpointsZoneIs(t *testing.T) {
	runKeyCases(t, fleet, map[string]keyCase{
		"the slice's zone counts before the node's label":       {"zone", "2@node-2/b 3@node-3/a", "3", matched(zone, "a")},
		"the slice's zone counts for an unknown node":           {"zone", "9@node-9/a", "9", matched(zone, "a")},
		"the slice's zone counts without a node":                {"zone", "2/a", "2", matched(zone, "a")},
		"the node's label counts where the slice says nothing":  {"zone", "2@node-2 3@node-3", "2", matched(zone, "a")},
		"this node's own label counts for its endpoints":        {"zone", "1*", "1", matched(zone, "a")},
		"the slice's zone says nothing about the hostname":      {"hostname", "2@node-2/a", "", noMatch(hostname, "node-1")},
		"the slice's zone says nothing about the region's name": {"region", "9@node-9/x", "", noMatch(region, "x")},
	})
	runKeyCases(t, map[string]string{"node-1": "zone=", "node-2": "zone=", "node-3": ""}, map[string]keyCase{
		"an empty zone label matches another empty label":           {"zone", "2@node-2 3@node-3", "2", matched(zone, "")},
		"an empty zone in the slice is unknown, and so not a match": {"zone", "2", "", noMatch(zone, "")},
	})
}

func TestANodeThatIsNotKnownYet(t *testing.T) {
	runKeyCases(t, nil, map[string]keyCase{
		"its hostname is its name":      {"hostname zone", "1* 2@node-2/a", "1", matched(hostname, "node-1")},
		"it carries no label":           {"zone", "1*/a 2@node-2/a", "", Reason{Code: NodeHasNoTopologyLabel, Key: zone}},
		"everything matches * anyway":   {"zone *", "1*/a 2@node-2/a", "1 2", Reason{Code: MatchedAnyNode, Key: "*"}},
		"without keys nothing is asked": {"", "1*/a 2@node-2/a", "1 2", Reason{Code: AllEndpoints}},
	})
	service := &model.Service{Topology: policy.Topology{Keys: []policy.Key{rack}}}
	viewpoint := NodeView{Node: model.Node{Name: "node-1", Labels: map[string]string{rack: "1"}}}
	got := Select(service, false, parseEndpoints(t, "1* 2@node-2"), viewpoint).Cluster
	if want := "1"; numbers(got.Endpoints) != want {
		t.Errorf("without a view of other nodes, endpoints are %q, want %q", numbers(got.Endpoints), want)
	}
}

// TestAnEndpointSliceResolvesTheKeysThatNeedNoNode, and no other keys.
func TestAnEndpointSliceResolvesTheKeysThatNeedNoNode(t *testing.T) {
	endpoint, ignorant := parseEndpoints(t, "1@node-2/a")[0], NodeView{Node: model.Node{Name: "node-1"}}
	for _, key := range []policy.Key{policy.AnyNode, policy.Hostname, policy.Zone, policy.Region, policy.Key(rack)} {
		value, _ := ignorant.ValueOf(&endpoint, key)
		if got := ignorant.matches(&endpoint, key, value); got == key.NeedsNode() {
			t.Errorf("%s: the EndpointSlice answers it: %v; it needs a Node: %v", key, got, key.NeedsNode())
		}
	}
}
