package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// annotated is a Service with the given annotation value on line 6.
func annotated(value string) string {
	return "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    vicinity.dev/topology-keys: " + value +
		"\n    other: x\nspec:\n  ports:\n  - port: 80\n"
}

// TestUnquotedValueIsReported checks values in a document, in a List and in braces, with text around them.
func TestUnquotedValueIsReported(t *testing.T) {
	for _, value := range []string{
		"*", "*, a/b", "*all", "&", "& x", "%", "%x", "@", "@x", "`", "`x`", "| x", "|x", "> x", "{", "{a", "[", "[a", "?", "? x", ":", ": x",
		",", ", x", "- x", "]", "}",
	} {
		want := fmt.Sprintf(`the value begins with "%s", which means something else in YAML; quote it`, value[:1])
		if value[0] == '[' || value[0] == '{' {
			want += ", or close the bracket"
		}
		wantFault(t, annotated(value), 6, want)
		wantFault(t, "# first\n---\n"+annotated("a")+"---\n"+annotated(value)+"---\n"+annotated("b"), 19, want)
		list := "apiVersion: v1\nkind: List\nitems:\n"
		for _, itemValue := range []string{"a", value, "b"} {
			indented := strings.ReplaceAll(strings.TrimSuffix(annotated(itemValue), "\n"), "\n", "\n  ")
			list += "- " + indented + "\n"
		}
		wantFault(t, list, 19, want)
	}
	for _, value := range []string{"'", `"`, "'a", `"a`, `"a" b`, "'a' b"} {
		wantFault(t, annotated(value), 6, fmt.Sprintf("the quotes must enclose the whole value, from %s to %[1]s", value[:1]))
	}
	wantFault(t, "kind: Service\nmetadata: {name: web, annotations: {a: b, c: *}}\n", 2,
		`the value begins with "*", which means something else in YAML; quote it`)
	wantFault(t, "kind: Service\nmetadata:\n  finalizers: [*, a]\n", 3,
		`the value begins with "*", which means something else in YAML; quote it`)
}

// TestOtherSyntaxErrors checks errors that would remain with another first letter.
func TestOtherSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		annotated("a: b"):                                   "6 mapping values are not allowed in this context",
		annotated("{{ .Values.keys }}x"):                    "6 did not find expected key",
		annotated("{{ .Values.keys }}: {"):                  "6 mapping values are not allowed in this context",
		"kind: Service\nmetadata:\n\tname: web\n":           "3 found character that cannot start any token",
		"a: *b # " + strings.Repeat("x", maxReparseBytes+1): "1 unknown anchor 'b' referenced",
	} {
		fault := faultOf(text)
		if got := fmt.Sprintf("%d %s", fault.Line, fault.Reason); got != want {
			t.Errorf("%.80q: got %s, want %s", text, got, want)
		}
	}
}

// faultOf returns the only error of a text.
func faultOf(text string) ParseError {
	var faults []ParseError
	for part := range Parts(YAML, []byte(text), serviceType) {
		if part.Fault != nil {
			faults = append(faults, *part.Fault)
		}
	}
	if len(faults) != 1 {
		return ParseError{Reason: fmt.Sprintf("%d errors: %v", len(faults), faults)}
	}
	return faults[0]
}

func wantFault(t *testing.T, text string, line int, reason string) {
	t.Helper()
	if got := faultOf(text); got.Line != line || got.Reason != reason {
		t.Errorf("line %d: %s; want line %d: %s, in:\n%s", got.Line, got.Reason, line, reason, text)
	}
}
