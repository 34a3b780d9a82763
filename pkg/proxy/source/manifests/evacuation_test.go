package manifests

import (
	"fmt"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The evacuation lasts until the label is removed. An invalid value counts as absent. A Node that is deleted together
// with its label stays demoted for a while.
func TestEvacuateLabel(t *testing.T) {
	f := newTestFolder(t)
	node := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {vicinity.dev/evacuate: %q}}\n", value)
	}
	const without = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {other: x}}\n"
	for _, step := range []struct {
		desc, text              string
		isReported, isEvacuated bool
		problems                int
	}{
		{"a label", node("true"), true, true, 0},
		{"a label with an end", node("20991122T1800Z"), true, true, 0},
		{"an invalid value", node("soon"), true, false, 1},
		{"no label", without, false, false, 0},
		{"a label with false", node("false"), false, false, 0},
		{"an invalid value after false", node("yes"), false, false, 1},
		{"a label again", node("True"), true, true, 0},
		{"an end before the zero time of Go", node("00010101T0000Z"), true, false, 0},
		{"a label once more", node("true"), true, true, 0},
		{"the deletion of the Node", "# nothing\n", false, false, 0},
	} {
		f.write("a.yaml", step.text)
		update, err := f.folder.Load(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		evacuation, changed := update.Change.Demotions[model.DemotionKey{Node: "n1"}]
		if changed != step.isReported || (evacuation != nil) != step.isEvacuated || len(update.NewProblems) != step.problems {
			t.Errorf("after %s: demotion changed: %t, %v; %d problems: %v", step.desc, changed, evacuation, len(update.NewProblems),
				update.NewProblems)
		}
	}
	if at, ok := f.folder.next(); !ok || time.Until(at) <= time.Minute {
		t.Errorf("after the deletion of the Node: next deadline %v, %v", at, ok)
	}
}
