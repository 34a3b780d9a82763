package manifest

import (
	"fmt"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
)

// maxDuplicates limits the number of duplicate keys per document. Each object is checked against all of them, so
// without a limit the cost is quadratic.
const maxDuplicates = 1000

// duplicateKeys returns the path of every key that a YAML document sets twice in one mapping. Keys from a merge ("<<")
// are not counted, because a merge exists to be overridden.
func duplicateKeys(text []byte) ([]string, error) {
	var root yamlv2.MapSlice
	if err := yamlv2.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	var search duplicateSearch
	search.visit(root)
	if len(search.found) > maxDuplicates {
		return nil, fmt.Errorf("yaml: more than %d fields are set twice", maxDuplicates)
	}
	return search.found, nil
}

// duplicateSearch walks a document. It builds a path only for a match, because a hostile document may be deep.
type duplicateSearch struct {
	path  []string
	found []string
}

func (s *duplicateSearch) visit(value any) {
	if len(s.found) > maxDuplicates {
		return
	}
	switch value := value.(type) {
	case yamlv2.MapSlice:
		s.visitMapping(value)
	case []any:
		for i, item := range value {
			s.path = append(s.path, "["+strconv.Itoa(i)+"]")
			s.visit(item)
			s.path = s.path[:len(s.path)-1]
		}
	}
}

func (s *duplicateSearch) visitMapping(items yamlv2.MapSlice) {
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		key := fmt.Sprint(item.Key)
		s.path = append(s.path, "."+key)
		if seen[key] {
			s.found = append(s.found, strings.TrimPrefix(strings.Join(s.path, ""), "."))
		}
		seen[key] = true
		s.visit(item.Value)
		s.path = s.path[:len(s.path)-1]
	}
}
