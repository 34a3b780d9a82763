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
	errs field.ErrorList // the first of them
	more int             // the number of the others
}

// add records the errors for which one part is skipped. Without errors it is not skipped.
func (l *skippedParts) add(errs field.ErrorList) {
	taken := min(len(errs), maxSkipped-len(l.errs))
	l.errs = append(l.errs, errs[:taken]...)
	l.more += len(errs) - taken
}

// findings returns one for each part with its field, its value and the reason; beyond maxSkipped only their number.
func (l *skippedParts) findings(kind string, name model.ObjectName) []model.Finding {
	var list []model.Finding
	add := func(field, reason string) {
		list = append(list, model.Finding{Kind: kind, Name: name, Code: model.PartiallyIgnored, Field: field, Reason: reason}.Sanitized())
	}
	for _, err := range l.errs {
		add(err.Field, err.ErrorBody())
	}
	if l.more > 0 {
		add("", fmt.Sprintf("and %d more", l.more))
	}
	return list
}

// withoutEffect returns a finding for each annotation of a Service that is ignored.
func withoutEffect(service model.ObjectName, ignored []policy.Ignored) []model.Finding {
	var list []model.Finding
	for _, one := range ignored {
		list = append(list, model.Finding{
			Kind: ServiceKind, Name: service, Code: model.FindingCode(one.Code()), Field: one.Annotation, Reason: one.Reason,
		})
	}
	return list
}
