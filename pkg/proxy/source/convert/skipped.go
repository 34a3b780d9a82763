package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// maxSkipped bounds the findings of one object. A slice may have 20,000 ports, and a few of them are enough.
const maxSkipped = 20

// skippedParts collects the reasons why parts of an object are skipped while the rest of it is served.
type skippedParts struct {
	errs    field.ErrorList // the first of them
	omitted int             // the number of the others
}

// add records the errors for which one part is skipped. Without errors the part is not skipped.
func (p *skippedParts) add(errs field.ErrorList) {
	kept := min(len(errs), maxSkipped-len(p.errs))
	p.errs = append(p.errs, errs[:kept]...)
	p.omitted += len(errs) - kept
}

// findings returns a finding for each skipped part, with its field, value and reason. Beyond maxSkipped, one finding
// has only their number.
func (p *skippedParts) findings(kind string, name model.ObjectName) []model.Finding {
	var list []model.Finding
	add := func(field, reason string) {
		list = append(list, model.Finding{Kind: kind, Name: name, Code: model.PartiallyIgnored, Field: field, Reason: reason}.Sanitized())
	}
	for _, err := range p.errs {
		add(err.Field, err.ErrorBody())
	}
	if p.omitted > 0 {
		add("", fmt.Sprintf("and %d more", p.omitted))
	}
	return list
}

// annotationFindings returns a finding for each annotation of a Service that is ignored.
func annotationFindings(service model.ObjectName, ignored []policy.IgnoredAnnotation) []model.Finding {
	var list []model.Finding
	for _, annotation := range ignored {
		list = append(list, model.Finding{
			Kind: ServiceKind, Name: service, Code: model.FindingCode(annotation.Code()), Field: annotation.Annotation, Reason: annotation.Reason,
		})
	}
	return list
}
