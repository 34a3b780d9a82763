package convert

import (
	"fmt"
	"regexp"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Messages returns a sentence for each finding. A field of a newer Kubernetes that many objects have is reported once,
// for the first of them.
func Messages(findings []model.Finding) []string {
	type sort struct{ kind, field string }
	sortOf := func(finding model.Finding) sort {
		return sort{finding.Kind, indexPattern.ReplaceAllString(finding.Field, "[]")}
	}
	objects := map[sort]int{}
	for _, finding := range findings {
		if finding.Reason == manifest.ForeignField {
			objects[sortOf(finding)]++
		}
	}
	var sentences []string
	for _, finding := range findings {
		sentence := finding.String()
		if finding.Reason == manifest.ForeignField {
			others := objects[sortOf(finding)] - 1
			delete(objects, sortOf(finding))
			if others < 0 {
				continue
			}
			if others > 0 {
				sentence += fmt.Sprintf("; also in %d more of this kind", others)
			}
		}
		sentences = append(sentences, sentence)
	}
	return sentences
}

// indexPattern matches an index in the path of a field.
var indexPattern = regexp.MustCompile(`\[[0-9]+\]`)
