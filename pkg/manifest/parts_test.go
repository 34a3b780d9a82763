package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	serviceType = Type{APIVersion: "v1", Kind: "Service"}
	nodeType    = Type{APIVersion: "v1", Kind: "Node"}
)

// partLines returns a line for each part of a text: `<line> <path> <kind> <namespace>/<name>`, or `<line> <path>
// <kind>! <field>: <reason>`.
func partLines(format Format, text string) []string {
	var lines []string
	for part := range Parts(format, []byte(text), serviceType, nodeType) {
		line := fmt.Sprintf("%d %s %s %s/%s", part.Line, part.Path, part.Type.Kind, part.Namespace, part.Name)
		if fault := part.Fault; fault != nil {
			line = fmt.Sprintf("%d %s %s! %s: %s", part.Line, part.Path, part.Type.Kind, fault.Field, fault.Reason)
			if fault.Line > 0 {
				line = fmt.Sprintf("line %d: %s", fault.Line, fault.Reason)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestParts(t *testing.T) {
	const web = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"
	for name, test := range map[string]struct {
		format Format
		text   string
		want   []string
	}{
		"nothing":                      {YAML, "", nil},
		"comments and empty documents": {YAML, "# a\n---\n# b\n---\nnull\n...\n", nil},
		"two documents":                {YAML, web + "---\n" + web, []string{"1  Service shop/web", "4  Service shop/web"}},
		"a byte order mark":            {YAML, "\xef\xbb\xbf" + web, []string{"1  Service shop/web"}},
		"Windows line breaks": {YAML, strings.ReplaceAll("# a\n"+web+"---\n"+web, "\n", "\r\n"),
			[]string{"1  Service shop/web", "5  Service shop/web"}},
		"an object of another kind, whatever its content": {YAML, "apiVersion: v1\nkind: ServiceAccount\nmetadata: 5\nmetadata: 6\n",
			[]string{"1  ServiceAccount /"}},
		"a list of another kind": {YAML, "apiVersion: v1\nkind: PodList\nitems: 5\n", []string{"1  PodList /"}},
		"a list of a kind that is read": {JSON, "\n" + `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"web"}}]}`,
			[]string{"2 items[0] Service /web"}},
		"a list in a list": {YAML, "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: NodeList\n  items:\n  - metadata: {name: n1}\n",
			[]string{"1 items[0].items[0] Node /n1"}},
		"items of several kinds": {JSON, `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod"},5,` +
			`{"kind":"Service"},{"apiVersion":"v1","kind":"Service","metadata":{"name":7}}]}`, []string{
			"1 items[0] Pod /", "1 items[1] ! : must be a Kubernetes object, with apiVersion, kind and metadata",
			"1 items[2] Service! apiVersion: Required value", "1 items[3] Service! metadata.name: must be string, not number",
		}},
		"a list with invalid fields": {YAML, "apiVersion: v1\nkind: List\nitem: 5\nitems: []\nitems: []\n", []string{
			"1  ! item: unknown field; did you mean items?", "1  ! items: duplicate field"}},
		"a list field with the name of an item": {JSON, `{"apiVersion":"v1","kind":"List","items[0]":1}`,
			[]string{"1  ! items[0]: unknown field, perhaps of a newer Kubernetes"}},
		"an invalid document between others": {YAML, web + "---\na: [\n---\n" + web, []string{
			"1  Service shop/web", "line 6: did not find expected node content", "6  Service shop/web"}},
		"truncated JSON": {JSON, "{}\n{\"a\":\n", []string{"1  ! kind: Required value", "line 3: unexpected EOF"}},
		"UTF-16":         {YAML, "\xfe\xff\x00k", []string{"1  ! : the file is UTF-16; save it as UTF-8"}},
		"a zip archive":  {JSON, "PK\x03\x04\x14\x00", []string{"1  ! : the file is a zip archive; unpack it first, with unzip"}},
		"a list with a field that is set twice": {YAML, "# a\n---\n- a: 1\n  a: 2\n- 5\n",
			[]string{"line 5: cannot unmarshal !!int `5` into yaml.MapItem"}},
		"a kind that is not a string": {YAML, "apiVersion: v1\nkind: 5\n", []string{"1  ! kind: must be string, not number"}},
		"no name":                     {YAML, "apiVersion: v1\nkind: Service\n", []string{"1  Service /"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, partLines(test.format, test.text)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPartsStopsEarly(t *testing.T) {
	const list = "apiVersion: v1\nkind: List\nitem: 5\nitems: [{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: Pod}]\n"
	for limit := 1; limit <= 6; limit++ {
		count := 0
		for range Parts(YAML, []byte(list+"---\n"+list)) {
			if count++; count == limit {
				break
			}
		}
		if count != limit {
			t.Errorf("%d parts, want %d", count, limit)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	const text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  a: 1\n  a: 2\n  b: 3\n" +
		"- apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n  a: x\n"
	var got [][]ParseError
	for part := range Parts(YAML, []byte(text), serviceType) {
		var object struct {
			Type     `json:",inline"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			A int `json:"a"`
		}
		got = append(got, part.Decode(&object))
	}
	want := [][]ParseError{
		{{Field: "b", Reason: UnknownField}, {Field: "a", Reason: DuplicateField}},
		{{Field: "a", Reason: "must be int, not string"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]struct {
		format Format
		ok     bool
	}{
		"a.yaml": {YAML, true}, "a/b.yml": {YAML, true}, "a.json": {JSON, true},
		"a.YAML": {YAML, false}, "yaml": {YAML, false}, "": {YAML, false},
	} {
		if format, ok := FormatOf(name); format != want.format || ok != want.ok {
			t.Errorf("FormatOf(%q) = %v, %v", name, format, ok)
		}
	}
}

// endless is a file that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReadLimit(t *testing.T) {
	text, err := Read("huge.yaml", endless{})
	const want = "read huge.yaml: larger than the limit of 268435456 bytes"
	if text != nil || err == nil || err.Error() != want {
		t.Errorf("Read() = %d bytes, %v; want %q", len(text), err, want)
	}
}

// FuzzParts parses any input. It must end, and the results must satisfy the documentation of Part.
func FuzzParts(f *testing.F) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a, annotations: {a/b: c}}\n---\na: [\n", "a: &a [*a]\n", "{a: b} c",
		"apiVersion: v1\nkind: List\nitems:\n- &a\n  apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n- <<: [*a, *a]\n  kind: Node\n",
		`{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a","a":1,"a":2}}]}` + "\n5 null", "\xef\xbb\xbfkind: 5",
		"? a\n: b\n? [a]\n: c", "a:\r\n  - \u2028b: 1\n    b: 2", "\"\": {\"\": 1}\n\"[\": 2\n",
	} {
		f.Add([]byte(text), true, "metadata.annotations[a/b]")
		f.Add([]byte(text), false, "spec.ports[0].port")
	}
	f.Fuzz(func(t *testing.T, text []byte, isJSON bool, field string) {
		format := YAML
		if isJSON {
			format = JSON
		}
		// There is one line more than there are line breaks, and YAML 1.1 has five kinds of line breaks.
		numLines := 1
		for _, lineBreak := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			numLines += strings.Count(string(text), lineBreak)
		}
		for part := range Parts(format, text, serviceType, nodeType) {
			isComplete := part.Type.APIVersion != "" && part.Type.Kind != "" && len(part.JSON) > 0
			if part.Fault == nil && !isComplete {
				t.Errorf("%+v is incomplete", part)
			}
			if fault := part.Fault; fault != nil && (fault.Reason == "" || fault.Line > numLines+1) {
				t.Errorf("%+v has the error %+v, but the file has %d lines", part, fault, numLines)
			}
			if line := part.LineOf(field); part.Line < 1 || line < part.Line || line > numLines {
				t.Errorf("%+v: %q is on line %d of %d", part, field, line, numLines)
			}
			var anything map[string]any
			if faults := part.Decode(&anything); part.Fault == nil && anything == nil && len(faults) == 0 {
				t.Errorf("%+v decodes to nothing without an error", part)
			}
		}
	})
}
