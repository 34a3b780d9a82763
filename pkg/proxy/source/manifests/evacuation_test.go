package manifests

import (
	"fmt"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The evacuation lasts until the label is removed. An invalid value counts as absent. If the Node is deleted, too, it
// stays demoted for a while.
func TestALabelOfANodeEvacuatesIt(t *testing.T) {
	f := newTestFolder(t)
	node := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {vicinity.dev/evacuate: %q}}\n", value)
	}
	const without = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {other: x}}\n"
	for _, step := range []struct {
		does, text        string
		told, isEvacuated bool
		problems          int
	}{
		{"it is there", node("true"), true, true, 0},
		{"it gets an end", node("20991122T1800Z"), true, true, 0},
		{"nobody can read it", node("soon"), true, false, 1},
		{"it goes", without, false, false, 0},
		{"it is off", node("false"), false, false, 0},
		{"nobody can read it, and it was off", node("yes"), false, false, 1},
		{"it is on again", node("True"), true, true, 0},
		{"it ended before the zero time of Go", node("00010101T0000Z"), true, false, 0},
		{"it is on once more", node("true"), true, true, 0},
		{"the Node goes", "# nothing\n", false, false, 0},
	} {
		f.write("a.yaml", step.text)
		update, err := f.folder.Load(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		evacuation, told := update.Change.Demotions[model.DemotionKey{Node: "n1"}]
		if told != step.told || (evacuation != nil) != step.isEvacuated || len(update.Rejected) != step.problems {
			t.Errorf("after %s, it is told %t: %v; %d problems: %v", step.does, told, evacuation, len(update.Rejected), update.Rejected)
		}
	}
	if at, some := f.folder.next(); !some || time.Until(at) <= time.Minute {
		t.Errorf("when the Node is gone the folder is due at %v: %v", at, some)
	}
}
