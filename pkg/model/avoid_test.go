package model

import (
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
	if timed, open := cluster.Evacuated(); timed != 1 || open != 2 || cluster.Avoid("node-6") == nil {
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
		avoid := cluster.Avoid("node-2")
		if avoid.Level() != step.level || avoid.SeenByAll().Level() != step.seen {
			t.Errorf("%s: %+v, want level %d, and %d for all", step.title, avoid, step.level, step.seen)
		}
	}
}
