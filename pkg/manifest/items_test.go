package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withoutSplitting changes a list so that it is not split.
func withoutSplitting(text string) string {
	return strings.Replace(text, "items:\n", "items: # whole\n", 1)
}

func TestSplitListEqualsWholeList(t *testing.T) {
	const item = "- apiVersion: v1\n  kind: Service\n  metadata:\n    name: "
	for name, text := range map[string]string{
		"as kubectl prints it":     "apiVersion: v1\nitems:\n" + item + "a\n" + item + "b\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
		"items last":               "kind: List\napiVersion: v1\nitems:\n" + item + "a\n",
		"comments and empty lines": "apiVersion: v1\nkind: List\nitems:\n# one\n" + item + "a\n\n# two\n" + item + "b\n",
		"a field twice":            "apiVersion: v1\nkind: List\nitems:\n" + item + "a\n    name: b\n" + item + "c\n",
		"not an object":            "apiVersion: v1\nkind: List\nitems:\n- a\n" + item + "c\n",
		"an empty item":            "apiVersion: v1\nkind: List\nitems:\n- \n" + item + "c\n",
		"a block scalar with a line items": "apiVersion: v1\nkind: List\nitems:\n" + item +
			"a\n    annotations:\n      text: |\n        - b\n        items:\n" + item + "c\n",
		"a list in a list": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  " +
			strings.ReplaceAll(item, "\n", "\n  ") + "a\n",
		"not a list":         "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nitems:\n- b\n",
		"a list of one kind": "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata:\n    name: a\n- metadata:\n    name: b\n",
	} {
		if diff := cmp.Diff(partLines(YAML, withoutSplitting(text)), partLines(YAML, text)); diff != "" {
			t.Errorf("%s (-whole +split):\n%s", name, diff)
		}
	}
}

func TestInvalidItemDoesNotAffectOthers(t *testing.T) {
	text := "apiVersion: v1\nkind: List\nitems:\n- {broken\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n"
	want := []string{"line 5: did not find expected ',' or '}'", "1 items[1] Service /a"}
	if diff := cmp.Diff(want, partLines(YAML, text)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	whole := "apiVersion: v1\nkind: List\nitems:\n- metadata: &m {name: a}\n- metadata: *m\n"
	for part := range Parts(YAML, []byte(whole)) {
		if part.Fault != nil && strings.Contains(part.Fault.Reason, "anchor") {
			t.Errorf("an alias for another item's anchor was not resolved: %+v", part.Fault)
		}
	}
}
