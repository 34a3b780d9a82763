package manifest

import (
	"fmt"
	"strings"
	"testing"
)

func TestLineOf(t *testing.T) {
	const header = "# a comment\n---\napiVersion: v1\nkind: Service\n"
	for name, test := range map[string]struct {
		text, field string
		want        int
	}{
		"the object":                          {header + "metadata: {name: a}\n", "", 3},
		"a field":                             {header + "metadata:\n  name: a\n", "metadata.name", 6},
		"a missing field":                     {header + "metadata:\n  name: a\n", "metadata.labels", 5},
		"a missing path":                      {header + "metadata:\n  name: a\n", "spec.ports[0]", 3},
		"an annotation with dots":             {header + "metadata:\n  annotations:\n    a.b/c: x\n    a: y\n", "metadata.annotations[a.b/c]", 7},
		"the same, as the decoder reports it": {header + "metadata:\n  annotations:\n    a: y\n    a.b/c: x\n", "metadata.annotations.a.b/c", 8},
		"a key that is a prefix of another":   {header + "metadata:\n  annotations:\n    ab: y\n    a: x\n", "metadata.annotations.a", 8},
		"an item":                             {header + "spec:\n  ports:\n  - port: 1\n  -\n    port: 2\n", "spec.ports[1].port", 9},
		"a missing item":                      {header + "spec:\n  ports:\n  - port: 1\n", "spec.ports[1].port", 6},
		"an invalid index":                    {header + "spec:\n  ports:\n  - port: 1\n", "spec.ports[x].port", 6},
		"flow style":                          {header + "metadata: {name: a,\n  labels: {b: c}}\n", "metadata.labels[b]", 6},
		"after a multi-line string":           {header + "metadata:\n  name: >\n    a\n    b\n  labels: {}\n", "metadata.labels", 9},
		"a key that is quoted":                {header + "metadata:\n  annotations:\n    \"a/b\": x\n", "metadata.annotations[a/b]", 7},
		"a field that is set twice":           {header + "metadata:\n  name: a\n  name: b\n", "metadata.name", 7},
		"an alias":                            {header + "metadata: &m\n  name: a\nother: *m\n", "other.name", 6},
		"a merge":                             {header + "x: &x\n  b: 1\nspec:\n  <<: *x\n  c: 1\n", "spec.b", 6},
		"a merge of two mappings":             {header + "x: &x {a: 1}\ny: &y\n  b: 1\nspec:\n  <<: [*x, *y]\n", "spec.b", 7},
		"a field next to a merge":             {header + "x: &x {b: 1}\nspec:\n  <<: *x\n  b: 2\n", "spec.b", 8},
		"Windows line breaks":                 {strings.ReplaceAll(header+"metadata:\n  name: a\n", "\n", "\r\n"), "metadata.name", 6},
		"JSON": {`{"apiVersion": "v1", "kind": "Service",` + "\n\t" + `"metadata": {` + "\n\t\t" + `"name": "a"}}`,
			"metadata.name", 3},
	} {
		t.Run(name, func(t *testing.T) {
			const before = "kind: Pod\napiVersion: v1\n---\n"
			var got []int
			for part := range Parts(YAML, []byte(before+test.text)) {
				got = append(got, part.LineOf(test.field)-strings.Count(before, "\n"))
			}
			if len(got) != 2 || got[1] != test.want {
				t.Errorf("%q is on lines %v of the two objects, want %d for the second", test.field, got, test.want)
			}
		})
	}
}

func TestLineOfInList(t *testing.T) {
	const text = "apiVersion: v1\nkind: List\nitems:\n- kind: Service\n  apiVersion: v1\n  metadata:\n    name: a\n- kind: Service\n" +
		"  apiVersion: v1\n  metadata: {name: b}\n"
	var got []int
	for part := range Parts(YAML, []byte(text), serviceType) {
		got = append(got, part.LineOf(""), part.LineOf("metadata.name"))
	}
	if want := "[4 7 8 10]"; fmt.Sprint(got) != want {
		t.Errorf("lines %v, want %s", got, want)
	}
}

// TestLineOfWithExponentialMerges checks that exponential merges end: each mapping merges the previous one ten times.
func TestLineOfWithExponentialMerges(t *testing.T) {
	text := "apiVersion: v1\nkind: Service\na0: &a0 {x: 1}\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d\n  <<: [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	lines := lines{first: 1, text: []byte(text)}
	if got := lines.find("a9.nothing"); got != 20 {
		t.Errorf("find(a9.nothing) = line %d, want 20", got)
	}
	if got := lines.find("a9.x"); got != 3 {
		t.Errorf("find(a9.x) = line %d, want 3", got)
	}
}

func TestLineOfUnparsableText(t *testing.T) {
	lines := lines{first: 7, text: []byte("a: [")}
	if got := lines.find("a"); got != 7 {
		t.Errorf("find(a) = line %d, want 7", got)
	}
}
