package model

import (
	"testing"
	"time"
)

func evacuating(nodes ...string) Change {
	change := Change{Evacuations: map[string]*Evacuation{}}
	for _, node := range nodes {
		change.Evacuations[node] = &Evacuation{}
	}
	return change
}

// TestEvacuationsConcernWhoHasEndpointsThere, when they begin and when they end; and nobody when only their end is
// another one.
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
		{"it gets an end", Change{Evacuations: map[string]*Evacuation{"node-2": {Until: new(time.Unix(1, 0))}}}, "", true},
		{
			"it is over, and another one begins", Change{Evacuations: map[string]*Evacuation{"node-2": nil, "node-6": {}}},
			"elsewhere racks zones", false,
		},
		{"one ends that never began", Change{Evacuations: map[string]*Evacuation{"node-4": nil}}, "", false},
	} {
		if got := words(cluster.Apply(step.change)); got != step.want {
			t.Errorf("%s: decided anew are %q, want %q", step.title, got, step.want)
		}
		endpoints := []PortEndpoint{{Endpoint: Endpoint{Node: "node-2"}}, {}}
		cluster.MarkEvacuated(endpoints)
		if (endpoints[0].Evacuation != nil) != step.marked || endpoints[1].Evacuation != nil {
			t.Errorf("%s: marked are %+v", step.title, endpoints)
		}
	}
	cluster.Apply(Change{Evacuations: map[string]*Evacuation{"node-1": {Until: new(time.Unix(1, 0))}}})
	if timed, open := cluster.Evacuated(); timed != 1 || open != 2 || cluster.Evacuation("node-6") == nil {
		t.Errorf("%d nodes are being evacuated until a time, %d without an end", timed, open)
	}
}

func TestWhatHasEndedIsNoEvacuation(t *testing.T) {
	at := time.Unix(1000, 0)
	change := Change{Evacuations: map[string]*Evacuation{
		"ended": {Until: &at}, "ended long ago": {Until: &time.Time{}}, "going on": {Until: new(at.Add(1))},
		"without end": {}, "over": nil,
	}}
	got := change.WithoutEnded(at).Evacuations
	hasEnded := len(got) == 5 && got["ended"] == nil && got["ended long ago"] == nil
	if !hasEnded || got["going on"] == nil || got["without end"] == nil || change.Evacuations["ended"] == nil {
		t.Errorf("left are %v of %v", got, change.Evacuations)
	}
}
