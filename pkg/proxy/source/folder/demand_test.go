package folder

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// leaseYAML is the Lease of a publisher that was renewed at a minute.
func leaseYAML(namespace string, minute int) string {
	return fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: vicinity-demand, namespace: %s}\n"+
		"spec: {renewTime: %q}\n---\n", namespace, time.Date(2026, 11, 27, 8, minute, 0, 0, time.UTC).Format("2006-01-02T15:04:05.000000Z07:00"))
}

// heartbeatYAML is a Node that told so at a minute.
func heartbeatYAML(minute int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {conditions: [{type: Ready, status: \"True\", "+
		"lastHeartbeatTime: %q}]}\n---\n", time.Date(2026, 11, 27, 8, minute, 0, 0, time.UTC).Format(time.RFC3339))
}

// TestALeaseInAFolder counts by the newest time that the objects tell, to those who follow the folder and to those who
// read it once.
func TestALeaseInAFolder(t *testing.T) {
	const demand = "apiVersion: vicinity.dev/v1alpha1\nkind: ServiceDemand\nmetadata: {name: web, namespace: default}\n" +
		"zones: [{zone: zone-a, asks: 1}]\nnodesHeard: 9\nnodesAll: 10\nconnectionsPerMinute: 7\nsince: 2026-11-27T08:00:00Z\n---\n"
	for name, c := range map[string]struct {
		text  string
		state model.DemandState
		found convert.LeaseFound
	}{
		"there is none":              {demand + heartbeatYAML(90), model.DemandCounts, convert.LeaseNotThere},
		"it is new":                  {demand + leaseYAML("webhook", 30) + heartbeatYAML(89), model.DemandCounts, convert.LeaseRead},
		"it is old":                  {demand + leaseYAML("webhook", 30) + heartbeatYAML(90), model.DemandStale, convert.LeaseRead},
		"nothing tells a later time": {demand + leaseYAML("webhook", 30), model.DemandCounts, convert.LeaseRead},
		"what was measured does":     {demand + leaseYAML("webhook", -60), model.DemandStale, convert.LeaseRead},
		"it is somebody else's":      {demand + leaseYAML("tenant", 30) + heartbeatYAML(90), model.DemandCounts, convert.LeaseNotThere},
		"there is another": {
			demand + leaseYAML("tenant", 90) + leaseYAML("webhook", 30) + heartbeatYAML(90), model.DemandStale, convert.LeaseRead,
		},
		"one of another name": {
			strings.Replace(leaseYAML("webhook", 90), "name: vicinity-demand", "name: node-1, nonsense: 1", 1) + demand, model.DemandCounts,
			convert.LeaseNotThere,
		},
	} {
		f := newTestFolder(t)
		f.folder.View.DemandNamespace = "webhook"
		f.write("a.yaml", c.text)
		update, err := f.folder.Load(f.dir)
		if err != nil || len(update.Refused) > 0 || update.Change.DemandState == nil || *update.Change.DemandState != c.state {
			t.Errorf("%s: followed: %v, refused %v, state %v, want %v", name, err, update.Refused, update.Change.DemandState, c.state)
		}
		objects, refused, err := Objects(f.dir, "webhook", nil)
		if err != nil || len(refused) > 0 || objects.DemandLease.State() != c.state {
			t.Errorf("%s: read once: %v, refused %v, %+v", name, err, refused, objects.DemandLease)
		}
		if got := f.folder.DemandLease(); got != objects.DemandLease || got.Found != c.found || !got.IsOfFolder {
			t.Errorf("%s: followed, it is %+v; read once %+v", name, got, objects.DemandLease)
		}
	}
}

// TestAFolderSaysWhatWasMeasured, and that it counts, as long as it holds any: it has no Lease.
func TestAFolderSaysWhatWasMeasured(t *testing.T) {
	f := newTestFolder(t)
	demand := func(name string, asks int) string {
		return fmt.Sprintf("apiVersion: vicinity.dev/v1alpha1\nkind: ServiceDemand\nmetadata: {name: %s, namespace: default}\n"+
			"zones: [{zone: zone-a, asks: %d}]\nnodesHeard: 9\nnodesAll: 10\nconnectionsPerMinute: 7\nsince: 2026-11-27T08:00:00Z\n---\n",
			name, asks)
	}
	const none = "# nothing\n"
	counts, unpublished := model.DemandCounts, model.DemandUnpublished
	for _, step := range []struct {
		does, text string
		state      *model.DemandState
		changed    int
		web        uint32 // the demand of zone-a on it; 0: nothing new
		problems   int
	}{
		{"nobody has measured", none, &unpublished, 0, 0, 0},
		{"something was measured", demand("web", 100), &counts, 1, 100, 0},
		{"it is measured anew, and of others", demand("web", 200) + demand("db", 1), nil, 2, 200, 0},
		{"it cannot be", demand("web", 1_000_001) + demand("db", 1), nil, 0, 0, 1},
		{"it is put right", demand("web", 300) + demand("db", 1), nil, 1, 300, 0},
		{"one is gone", demand("web", 300), nil, 1, 0, 0},
		{"the other is gone", none, &unpublished, 1, 0, 0},
		{"it was never right", demand("web", 1_000_001), nil, 0, 0, 1},
	} {
		f.write("a.yaml", step.text)
		update, err := f.folder.Load(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		change := update.Change
		if (change.DemandState == nil) != (step.state == nil) || step.state != nil && *change.DemandState != *step.state {
			t.Errorf("%s: the state is %v", step.does, change.DemandState)
		}
		web := change.Demands[model.ObjectName{Namespace: "default", Name: "web"}]
		if len(change.Demands) != step.changed || step.web != 0 && (web == nil || web.Zones["zone-a"] != step.web) {
			t.Errorf("%s: what was measured is %v", step.does, change.Demands)
		}
		if len(update.Refused) != step.problems {
			t.Errorf("%s: problems are %v", step.does, update.Refused)
		}
	}
}
