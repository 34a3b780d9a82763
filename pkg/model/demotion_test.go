package model

import (
	"net/netip"
	"testing"
	"time"
)

func evacuating(nodes ...string) Change {
	change := Change{Demotions: map[DemotionKey]*Demotion{}}
	for _, node := range nodes {
		change.Demotions[DemotionKey{Node: node}] = &Demotion{}
	}
	return change
}

// TestEvacuationsAffectServicesWithEndpointsOnTheNode: Apply returns the Services with endpoints on the node when an
// evacuation starts or ends, and none if only the planned end changes.
func TestEvacuationsAffectServicesWithEndpointsOnTheNode(t *testing.T) {
	cluster := startingCluster()
	for _, step := range []struct {
		title  string
		change Change
		want   string
		marked bool
	}{
		{"a node without endpoints", evacuating("node-9"), "", false},
		{"an evacuation starts", evacuating("node-2"), "racks zones", true},
		{"the same evacuation again", evacuating("node-2"), "", true},
		{"an end is set", Change{Demotions: map[DemotionKey]*Demotion{{Node: "node-2"}: {Until: new(time.Unix(1, 0))}}}, "", true},
		{
			"it ends, and another one starts", Change{Demotions: map[DemotionKey]*Demotion{{Node: "node-2"}: nil, {Node: "node-6"}: {}}},
			"elsewhere racks zones", false,
		},
		{"an unknown evacuation ends", Change{Demotions: map[DemotionKey]*Demotion{{Node: "node-4"}: nil}}, "", false},
	} {
		if got := namesText(cluster.Apply(step.change)); got != step.want {
			t.Errorf("%s: Apply returned %q, want %q", step.title, got, step.want)
		}
		endpoints := []PortEndpoint{{Endpoint: Endpoint{Node: "node-2"}}, {}}
		cluster.MarkDemoted(endpoints)
		if (endpoints[0].Demotion != nil) != step.marked || endpoints[1].Demotion != nil {
			t.Errorf("%s: endpoints after MarkDemoted: %+v", step.title, endpoints)
		}
	}
	cluster.Apply(Change{Demotions: map[DemotionKey]*Demotion{{Node: "node-1"}: {Until: new(time.Unix(1, 0))}}})
	if timed, openEnded := cluster.Evacuated(); timed != 1 || openEnded != 2 || cluster.DemotionOf("node-6", IPv6) == nil {
		t.Errorf("%d nodes are being evacuated with an end, and %d without; want 1 and 2, and node-6 among them", timed, openEnded)
	}
}

func TestIsExpired(t *testing.T) {
	end := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		until *time.Time
		want  bool
	}{
		"ended now": {&end, true}, "ended before the zero time": {&time.Time{}, true}, "not ended": {new(end.Add(1)), false}, "without end": {},
	} {
		if got := (&Demotion{Until: test.until}).IsExpired(end); got != test.want {
			t.Errorf("%s: IsExpired returned %v", name, got)
		}
	}
}

// TestNodeWithSeveralDemotionReasons: the node-local reason decides here, and the cluster-wide one remains available.
func TestNodeWithSeveralDemotionReasons(t *testing.T) {
	cluster := startingCluster()
	unreachable := DemotionKey{Node: "node-2", Reason: Unreachable}
	const evacuatedLevel, unreachableLevel = 1 + Rank(Evacuated), 1 + Rank(Unreachable)
	for _, step := range []struct {
		title       string
		change      Change
		want        string
		level, seen Rank
	}{
		{"it is evacuated", evacuating("node-2"), "racks zones", evacuatedLevel, evacuatedLevel},
		{"it is unreachable", Change{Demotions: map[DemotionKey]*Demotion{unreachable: {Reason: Unreachable}}}, "racks zones",
			unreachableLevel, evacuatedLevel},
		{"the evacuation ends", Change{Demotions: map[DemotionKey]*Demotion{{Node: "node-2"}: nil}}, "racks zones", unreachableLevel, 0},
		{"it is evacuated again", evacuating("node-2"), "racks zones", unreachableLevel, evacuatedLevel},
		{"it is reachable again", Change{Demotions: map[DemotionKey]*Demotion{unreachable: nil}}, "racks zones", evacuatedLevel, evacuatedLevel},
	} {
		if got := namesText(cluster.Apply(step.change)); got != step.want {
			t.Errorf("%s: Apply returned %q, want %q", step.title, got, step.want)
		}
		demotion := cluster.DemotionOf("node-2", IPv4)
		if demotion.Level() != step.level || demotion.ClusterWide().Level() != step.seen {
			t.Errorf("%s: %+v, want level %d, and cluster-wide %d", step.title, demotion, step.level, step.seen)
		}
	}
}

// TestANodeIsUnreachableInOneFamily: a node may be unreachable in one family only, without effect on endpoints of the
// other family.
func TestANodeIsUnreachableInOneFamily(t *testing.T) {
	cluster := startingCluster()
	unreachable := DemotionKey{Node: "node-2", Reason: Unreachable}
	for _, step := range []struct {
		title  string
		change Change
		levels [2]Rank
	}{
		{"IPv6 only", Change{Demotions: map[DemotionKey]*Demotion{unreachable: {Reason: Unreachable, Families: []Family{IPv6}}}}, [2]Rank{0, 2}},
		{"and evacuated", evacuating("node-2"), [2]Rank{1, 2}},
		{"both families", Change{Demotions: map[DemotionKey]*Demotion{unreachable: {Reason: Unreachable}}}, [2]Rank{2, 2}},
		{"IPv4 only", Change{Demotions: map[DemotionKey]*Demotion{unreachable: {Reason: Unreachable, Families: []Family{IPv4}}}}, [2]Rank{2, 1}},
		{
			"lasting", Change{Demotions: map[DemotionKey]*Demotion{unreachable: {Reason: Unreachable, Families: []Family{IPv4}, IsLasting: true}}},
			[2]Rank{2, 1},
		},
		{"reachable again", Change{Demotions: map[DemotionKey]*Demotion{unreachable: nil}}, [2]Rank{1, 1}},
	} {
		if got := namesText(cluster.Apply(step.change)); got != "racks zones" {
			t.Errorf("%s: Apply returned %q", step.title, got)
		}
		endpoints := []PortEndpoint{
			{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Endpoint: Endpoint{Node: "node-2"}},
			{Addr: netip.MustParseAddrPort("[fd00::1]:80"), Endpoint: Endpoint{Node: "node-2"}},
		}
		cluster.MarkDemoted(endpoints)
		if got := [2]Rank{endpoints[0].Demotion.Level(), endpoints[1].Demotion.Level()}; got != step.levels {
			t.Errorf("%s: levels %v, want %v", step.title, got, step.levels)
		}
	}
}
