package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LineOf returns the line in the file of a field of the part, such as "spec.ports[0]" or
// "metadata.annotations[example.com/a]". If the field does not exist, it returns the line of the closest ancestor.
func (p *Part) LineOf(field string) int {
	if p.lines == nil {
		return p.Line
	}
	return p.lines.find(p.Field(field))
}

// lines finds the lines of fields in one document.
type lines struct {
	first  int // first line of the document in the file
	text   []byte
	isRead bool
	root   *yaml.Node // nil if the text could not be parsed: every field is then on the first line
}

// find returns the line of the field at a path in the document.
func (l *lines) find(path string) int {
	if !l.isRead {
		l.isRead = true
		l.root, _ = parseNodes(l.text) // nil on errors, as documented there
		l.text = nil
	}
	line, node := 0, l.root
	for node != nil {
		if node.Line > 0 && line == 0 {
			line = node.Line
		}
		key, value, rest := step(node, path)
		if key != nil {
			line = key.Line
		}
		node, path = value, rest
	}
	return l.first + max(line-1, 0)
}

// parseNodes parses a document with a library that records lines; it returns nil if the document is invalid or empty.
// The library implements the newer YAML 1.2, which makes no difference for the lines of fields.
func parseNodes(text []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) == 0 {
		return nil, err
	}
	return document.Content[0], nil
}

// step descends by one field. It returns the node of the key, its value, and the rest of the path. All are empty if
// there is no such field.
func step(node *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	switch node.Kind {
	case yaml.AliasNode:
		return nil, node.Alias, path
	case yaml.SequenceNode:
		return stepIntoSequence(node, path)
	case yaml.MappingNode:
		return stepIntoMapping(node, path)
	default:
		return nil, nil, ""
	}
}

func stepIntoSequence(node *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	indexText, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
	index, err := strconv.Atoi(indexText)
	if !ok || err != nil || index < 0 || index >= len(node.Content) {
		return nil, nil, ""
	}
	item := node.Content[index]
	return item, item, rest
}

// stepIntoMapping finds the longest key with which the path begins, since keys may contain dots, and the last of
// several equal keys, which is the effective one. A key of the mapping itself takes precedence over a key from a merge
// ("<<").
func stepIntoMapping(node *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	mappings, seen := []*yaml.Node{node}, map[*yaml.Node]bool{node: true}
	for key == nil && len(mappings) > 0 {
		key, value, rest = directKey(mappings[0], path)
		for _, merged := range merges(mappings[0]) {
			if !seen[merged] {
				seen[merged] = true
				mappings = append(mappings, merged)
			}
		}
		mappings = mappings[1:]
	}
	return key, value, rest
}

// directKey is stepIntoMapping without merges.
func directKey(node *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		candidate := node.Content[i]
		after, ok := cutKey(path, candidate.Value)
		if ok && (key == nil || len(candidate.Value) >= len(key.Value)) {
			key, value, rest = candidate, node.Content[i+1], after
		}
	}
	return key, value, rest
}

// merges returns the mappings that are merged into a mapping.
func merges(node *yaml.Node) []*yaml.Node {
	var mappings []*yaml.Node
	add := func(value *yaml.Node) {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Kind == yaml.MappingNode {
			mappings = append(mappings, value)
		}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Tag != "!!merge" {
			continue
		}
		add(node.Content[i+1])
		for _, item := range node.Content[i+1].Content {
			add(item)
		}
	}
	return mappings
}

// cutKey removes a mapping's key from the start of a path: "a.b", "a[0]" or "[a].b".
func cutKey(path, key string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(path, "["+key+"]"); ok {
		return rest, true
	}
	rest, ok = strings.CutPrefix(strings.TrimPrefix(path, "."), key)
	if !ok || rest == path {
		return "", false
	}
	return rest, rest == "" || rest[0] == '.' || rest[0] == '['
}
