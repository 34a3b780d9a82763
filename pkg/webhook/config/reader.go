package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// reader reads one file, and collects what is wrong with it.
type reader struct {
	file     string
	problems []problem
}

// problem is one mistake.
type problem struct {
	line int
	text string
}

// member is a field that a mapping may have.
type member struct {
	name string
	read func(at *field.Path, value *yaml.Node) // nil: it has been read
	// within are the names of its own fields, for a message about one of them in the wrong place.
	within []string
}

func (r *reader) wrong(node *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, problem{line: max(node.Line, 1), text: fmt.Sprintf(format, args...)})
}

func (r *reader) refuse(node *yaml.Node, err *field.Error) { r.wrong(node, "%s", err.Error()) }

// err returns all problems in the order of their lines; nil if there are none.
func (r *reader) err() error {
	slices.SortStableFunc(r.problems, func(a, b problem) int { return a.line - b.line })
	var errs []error
	for _, problem := range r.problems {
		errs = append(errs, fmt.Errorf("%s:%d: %s", r.file, problem.line, problem.text))
	}
	return errors.Join(errs...)
}

// document returns the only document of a text; nil and a problem if there are none or several.
func (r *reader) document(text []byte) *yaml.Node {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var found *yaml.Node
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fault := manifest.SyntaxFault(text, err)
			r.wrong(&yaml.Node{Line: fault.Line}, "this is not YAML: %s", fault.Reason)
			return nil
		}
		content := document.Content[0]
		switch {
		case isNull(content): // nothing between two separators
		case found != nil:
			r.wrong(content, "this is a second document, and there must be one")
			return nil
		default:
			found = content
		}
	}
	if found == nil {
		r.wrong(&yaml.Node{}, "the file is empty")
	}
	return found
}

// each yields the fields of a mapping, except for null ones: their content is probably commented out.
func (r *reader) each(mapping *yaml.Node, at *field.Path, take func(at *field.Path, key, value *yaml.Node)) {
	if isNull(mapping) {
		return
	}
	if mapping.Kind != yaml.MappingNode {
		r.wrong(mapping, "%s: must hold fields, not %s", at, kindOf(mapping))
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		at := child(at, nameOf(key))
		switch line, twice := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			r.wrong(key, "%s: must be the name of a field", at)
		case twice:
			r.wrong(key, "%s: duplicate field; line %d sets it already", at, line)
		default:
			lines[key.Value] = key.Line
			take(at, key, value)
		}
	}
}

// fields reads a mapping whose fields are known.
func (r *reader) fields(mapping *yaml.Node, parent *field.Path, members []member) {
	r.each(mapping, parent, func(at *field.Path, key, value *yaml.Node) {
		known := slices.IndexFunc(members, func(m member) bool { return m.name == key.Value })
		switch {
		case known < 0:
			r.wrong(key, "%s: unknown field%s", at, suggestion(key.Value, namesOf(parent, members)))
		case members[known].read != nil && !isNull(value):
			members[known].read(at, value)
		}
	})
}

// namesOf are the fields that may have been meant: those of this mapping, and those within them.
func namesOf(parent *field.Path, members []member) []string {
	var names, deeper []string
	for _, m := range members {
		names = append(names, child(parent, m.name).String())
		for _, name := range m.within {
			deeper = append(deeper, child(parent, m.name).Child(name).String())
		}
	}
	return append(names, deeper...)
}

// suggestion ends a sentence with the word that was probably meant, if one is close. For fields only the last part is
// compared.
func suggestion(word string, known []string) string {
	var last []string
	for _, path := range known {
		last = append(last, path[strings.LastIndexByte(path, '.')+1:])
	}
	meant := slices.Index(last, word) // the right word in the wrong place
	if meant < 0 {
		meant = slices.Index(last, policy.Suggest(word, last...))
	}
	if meant < 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", known[meant])
}
