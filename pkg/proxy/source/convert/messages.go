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
	type fieldKey struct{ kind, field string }
	fieldKeyOf := func(finding model.Finding) fieldKey {
		return fieldKey{finding.Kind, indexPattern.ReplaceAllString(finding.Field, "[]")}
	}
	counts := map[fieldKey]int{}
	for _, finding := range findings {
		if finding.Reason == manifest.ForeignField {
			counts[fieldKeyOf(finding)]++
		}
	}
	var sentences []string
	for _, finding := range findings {
		sentence := finding.String()
		if finding.Reason == manifest.ForeignField {
			others := counts[fieldKeyOf(finding)] - 1
			delete(counts, fieldKeyOf(finding))
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
