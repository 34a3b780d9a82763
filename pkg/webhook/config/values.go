package config

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// boolInto reads true or false into a variable.
func (r *reader) boolInto(into *bool) func(at *field.Path, value *yaml.Node) {
	return func(at *field.Path, value *yaml.Node) {
		if err := value.Decode(into); err != nil || value.Tag != "!!bool" {
			r.refuse(value, field.Invalid(at, short(value.Value), "must be true or false"))
		}
	}
}

// text reads a text that passes a check.
func (r *reader) text(at *field.Path, value *yaml.Node, check func(string) []string) string {
	if !r.isText(at, value) {
		return ""
	}
	if wrong := check(value.Value); len(wrong) > 0 {
		r.refuse(value, field.Invalid(at, short(value.Value), strings.Join(wrong, "; ")))
	}
	return value.Value
}

// texts reads a list of them. An empty list is valid.
func (r *reader) texts(at *field.Path, value *yaml.Node, check func(string) []string) []string {
	if value.Kind != yaml.SequenceNode {
		r.wrong(value, "%s: must be a list, not %s", at, kindOf(value))
		return nil
	}
	texts := []string{}
	for i, item := range value.Content {
		texts = append(texts, r.text(at.Index(i), item, check))
	}
	return texts
}

// isText refuses everything else. What looks like a number or a date must be quoted.
func (r *reader) isText(at *field.Path, value *yaml.Node) bool {
	if value.Kind == yaml.ScalarNode && value.Tag == "!!str" {
		return true
	}
	r.wrong(value, "%s: must be a text, not %s", at, kindOf(value))
	return false
}

func unsupported(at *field.Path, value, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeNotSupported, Field: at.String(), BadValue: short(value), Detail: detail}
}

// short is a value for a message, which quotes it.
func short(value string) string {
	const most = 64
	if len(value) > most {
		return strings.ToValidUTF8(value[:most], "") + "..."
	}
	return value
}

// isNull reports whether a value is missing.
func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

// kindOf says what is written, for an error about a value of another kind.
func kindOf(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "fields"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return "an alias, which is not read here: write it out"
	case isNull(node):
		return "nothing"
	}
	return fmt.Sprintf("%q", short(node.Value))
}

// valueOf finds a field of a mapping; nil without it.
func valueOf(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// plainName is what a path can show as it is.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)

// nameOf is a field's name in a path.
func nameOf(key *yaml.Node) string {
	if plainName.MatchString(key.Value) {
		return key.Value
	}
	return fmt.Sprintf("%q", short(key.Value))
}

// child is the path of a field; without a parent, of a field of the document.
func child(parent *field.Path, name string) *field.Path {
	if parent == nil {
		return field.NewPath(name)
	}
	return parent.Child(name)
}
