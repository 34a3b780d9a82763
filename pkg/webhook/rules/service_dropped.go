package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// droppedFields: fields about traffic that stand where API servers drop them, such as trafficDistribution of a port, in
// a file or in what a user applied. For the latter the path is that of the field that was meant: there is no other.
func droppedFields(s *subject) (violations []Violation) {
	for _, lost := range misplacedFields(s.Written) {
		detail := fmt.Sprintf("API servers drop it here; did you mean spec.%s?", lost.meant)
		err := &field.Error{Type: field.ErrorTypeForbidden, Field: lost.path, Detail: detail}
		violations = append(violations, violationOf(err, ""))
	}
	if len(violations) > 0 {
		return violations
	}
	for _, lost := range misplacedFields([]byte(s.Metadata.Annotations[lastApplied])) {
		detail := fmt.Sprintf("API servers dropped what was applied as %s; did you mean spec.%s?", Cut(lost.path, maxShown), lost.meant)
		err := errorOf(field.ErrorTypeForbidden, field.NewPath("spec", lost.meant), "", detail)
		violations = append(violations, violationOf(err, lost.path))
	}
	return violations
}

// misplacedField is a field in a wrong place, or with nearly the name, and the name of the field of spec that is meant.
type misplacedField struct{ path, meant string }

// misplacedFields are those of a Service as somebody wrote it; none if the text is no object.
func misplacedFields(service []byte) []misplacedField {
	var object map[string]any
	if !mayHaveTrafficField(service) || json.Unmarshal(service, &object) != nil {
		return nil
	}
	var found []misplacedField
	visit("", object, maxFieldDepth, &found)
	return found
}

// mayHaveTrafficField reports whether a text has the letters of a field about traffic. Most do not, and are not
// decoded: each review of a Service that kubectl applied comes here. A backslash may hide any letter.
func mayHaveTrafficField(service []byte) bool {
	text := letters(string(service))
	return strings.Contains(text, `\`) || slices.ContainsFunc(trafficFields, func(field string) bool {
		return strings.Contains(text, letters(field))
	})
}

// maxFieldDepth is deeper than the fields of any Service are nested: what lies below is not a typo.
const maxFieldDepth = 10

// withKeysOfUsers are the fields whose keys are not names of fields.
var withKeysOfUsers = []string{"metadata.annotations", "metadata.labels", "metadata.managedFields", "spec.selector"}

// visit goes through what is below a value, some levels down.
func visit(path string, value any, levels int, found *[]misplacedField) {
	if levels == 0 {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := name
			if path != "" {
				at = path + "." + name
			}
			if meant := fieldMeant(path, name); meant != "" {
				*found = append(*found, misplacedField{shownKey(at), meant})
			} else if !slices.Contains(withKeysOfUsers, at) {
				visit(at, value[name], levels-1, found)
			}
		}
	case []any:
		for i, item := range value {
			visit(fmt.Sprintf("%s[%d]", path, i), item, levels-1, found)
		}
	}
}

// fieldMeant returns the field about traffic that is meant by another one; empty if none is meant, or if it is that
// field.
func fieldMeant(parent, name string) string {
	meant, isOfSpec := strings.CutPrefix(settingMeant(name), "spec.")
	if !isOfSpec || parent == "spec" && meant == name {
		return ""
	}
	return meant
}
