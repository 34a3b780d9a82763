package manifests

import (
	"fmt"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Measured demand counts as long as the folder has any, because a folder has no Lease.
func TestAFolderProvidesMeasuredDemand(t *testing.T) {
	f := newTestFolder(t)
	demand := func(name string, ppm int) string {
		return fmt.Sprintf("apiVersion: vicinity.dev/v1alpha1\nkind: ServiceDemand\nmetadata: {name: %s, namespace: default}\n"+
			"zones: [{zone: zone-a, demandPPM: %d}]\nnodesReporting: 9\nnodesTotal: 10\nconnectionsPerMinute: 7\n"+
			"observedAt: 2026-11-27T08:00:00Z\n---\n",
			name, ppm)
	}
	const none = "# nothing\n"
	active, unavailable := model.DemandActive, model.DemandUnavailable
	for _, step := range []struct {
		desc, text string
		state      *model.DemandState
		changed    int
		web        uint32 // the demand of zone-a; 0 if no update is expected
		problems   int
	}{
		{"no ServiceDemand", none, &unavailable, 0, 0, 0},
		{"a ServiceDemand is added", demand("web", 100), &active, 1, 100, 0},
		{"it changes, and another one is added", demand("web", 200) + demand("db", 1), nil, 2, 200, 0},
		{"it is invalid", demand("web", 1_000_001) + demand("db", 1), nil, 0, 0, 1},
		{"it is valid again", demand("web", 300) + demand("db", 1), nil, 1, 300, 0},
		{"one is deleted", demand("web", 300), nil, 1, 0, 0},
		{"the other is deleted", none, &unavailable, 1, 0, 0},
		{"it was never valid", demand("web", 1_000_001), nil, 0, 0, 1},
	} {
		f.write("a.yaml", step.text)
		update, err := f.folder.Load(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		change := update.Change
		if (change.DemandState == nil) != (step.state == nil) || step.state != nil && *change.DemandState != *step.state {
			t.Errorf("%s: the state is %v", step.desc, change.DemandState)
		}
		web := change.Demands[model.ObjectName{Namespace: "default", Name: "web"}]
		if len(change.Demands) != step.changed || step.web != 0 && (web == nil || web.Zones["zone-a"] != step.web) {
			t.Errorf("%s: demands are %v", step.desc, change.Demands)
		}
		if len(update.NewProblems) != step.problems {
			t.Errorf("%s: problems are %v", step.desc, update.NewProblems)
		}
	}
}
