package model

import (
	"net/netip"
	"testing"
	"time"
)

func evacuating(nodes ...string) Change {
	change := Change{Avoid: map[Against]*Avoid{}}
	for _, node := range nodes {
		change.Avoid[Against{Node: node}] = &Avoid{}
	}
	return change
}

// TestEvacuationsConcernWhoHasEndpointsThere, when they begin and when they end. A change of only the planned end
// concerns no Service.
func TestEvacuationsConcernWhoHasEndpointsThere(t *testing.T) {
	cluster := startingCluster()
	for _, step := range []struct {
		title  string
		change Change
		want   string
		marked bool
	}{
		{"a node without endpoints", evacuating("node-9"), "", false},
		{"one begins", evacuating("node-2"), "racks zones", true},
		{"it is told again", evacuating("node-2"), "", true},
		{"it gets an end", Change{Avoid: map[Against]*Avoid{{Node: "node-2"}: {Until: new(time.Unix(1, 0))}}}, "", true},
		{
			"it is over, and another one begins", Change{Avoid: map[Against]*Avoid{{Node: "node-2"}: nil, {Node: "node-6"}: {}}},
			"elsewhere racks zones", false,
		},
		{"one ends that never began", Change{Avoid: map[Against]*Avoid{{Node: "node-4"}: nil}}, "", false},
	} {
		if got := words(cluster.Apply(step.change)); got != step.want {
			t.Errorf("%s: decided anew are %q, want %q", step.title, got, step.want)
		}
		endpoints := []PortEndpoint{{Endpoint: Endpoint{Node: "node-2"}}, {}}
		cluster.MarkAvoided(endpoints)
		if (endpoints[0].Avoid != nil) != step.marked || endpoints[1].Avoid != nil {
			t.Errorf("%s: marked are %+v", step.title, endpoints)
		}
	}
	cluster.Apply(Change{Avoid: map[Against]*Avoid{{Node: "node-1"}: {Until: new(time.Unix(1, 0))}}})
	if timed, open := cluster.Evacuated(); timed != 1 || open != 2 || cluster.Avoid("node-6", IPv6) == nil {
		t.Errorf("%d nodes are being evacuated until a time, %d without an end", timed, open)
	}
}

func TestWhatHasEndedIsOver(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		until *time.Time
		want  bool
	}{
		"ended now": {&at, true}, "ended before the zero time": {&time.Time{}, true}, "going on": {new(at.Add(1)), false}, "without end": {},
	} {
		if got := (&Avoid{Until: test.until}).IsOver(at); got != test.want {
			t.Errorf("%s: it is over: %v", name, got)
		}
	}
}

// TestSeveralReasonsTogether: what this node alone has seen decides here, without hiding what all nodes see.
func TestSeveralReasonsTogether(t *testing.T) {
	cluster := startingCluster()
	unreachable := Against{Node: "node-2", Why: Unreachable}
	const evacuated, silent = 1 + Rank(Evacuated), 1 + Rank(Unreachable)
	for _, step := range []struct {
		title       string
		change      Change
		want        string
		level, seen Rank
	}{
		{"it is evacuated", evacuating("node-2"), "racks zones", evacuated, evacuated},
		{"it does not answer", Change{Avoid: map[Against]*Avoid{unreachable: {Why: Unreachable}}}, "racks zones", silent, evacuated},
		{"the evacuation is over", Change{Avoid: map[Against]*Avoid{{Node: "node-2"}: nil}}, "racks zones", silent, 0},
		{"it is evacuated again", evacuating("node-2"), "racks zones", silent, evacuated},
		{"it answers", Change{Avoid: map[Against]*Avoid{unreachable: nil}}, "racks zones", evacuated, evacuated},
	} {
		if got := words(cluster.Apply(step.change)); got != step.want {
			t.Errorf("%s: decided anew are %q, want %q", step.title, got, step.want)
		}
		avoid := cluster.Avoid("node-2", IPv4)
		if avoid.Level() != step.level || avoid.SeenByAll().Level() != step.seen {
			t.Errorf("%s: %+v, want level %d, and %d for all", step.title, avoid, step.level, step.seen)
		}
	}
}

// TestANodeIsUnreachableInOneFamily: in the other one its endpoints are as before.
func TestANodeIsUnreachableInOneFamily(t *testing.T) {
	cluster := startingCluster()
	unreachable := Against{Node: "node-2", Why: Unreachable}
	for _, step := range []struct {
		title  string
		change Change
		levels [2]Rank
	}{
		{"IPv6", Change{Avoid: map[Against]*Avoid{unreachable: {Why: Unreachable, Families: []Family{IPv6}}}}, [2]Rank{0, 2}},
		{"and evacuated", evacuating("node-2"), [2]Rank{1, 2}},
		{"both", Change{Avoid: map[Against]*Avoid{unreachable: {Why: Unreachable}}}, [2]Rank{2, 2}},
		{"IPv4", Change{Avoid: map[Against]*Avoid{unreachable: {Why: Unreachable, Families: []Family{IPv4}}}}, [2]Rank{2, 1}},
		{
			"for long", Change{Avoid: map[Against]*Avoid{unreachable: {Why: Unreachable, Families: []Family{IPv4}, IsLasting: true}}},
			[2]Rank{2, 1},
		},
		{"no longer", Change{Avoid: map[Against]*Avoid{unreachable: nil}}, [2]Rank{1, 1}},
	} {
		if got := words(cluster.Apply(step.change)); got != "racks zones" {
			t.Errorf("%s: decided anew are %q", step.title, got)
		}
		endpoints := []PortEndpoint{
			{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Endpoint: Endpoint{Node: "node-2"}},
			{Addr: netip.MustParseAddrPort("[fd00::1]:80"), Endpoint: Endpoint{Node: "node-2"}},
		}
		cluster.MarkAvoided(endpoints)
		if got := [2]Rank{endpoints[0].Avoid.Level(), endpoints[1].Avoid.Level()}; got != step.levels {
			t.Errorf("%s: levels %v, want %v", step.title, got, step.levels)
		}
	}
}
