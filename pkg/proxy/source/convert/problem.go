package convert

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ValidationFindings returns a finding for each validation error of an object of the cluster.
func ValidationFindings(kind *Kind, name model.ObjectName, uid string, errs field.ErrorList) []model.Finding {
	problems := ObjectKey{kind, name}.Problems("", errs)
	for i := range problems {
		problems[i].UID = uid
	}
	return problems
}

// findingsGetter is implemented by values that report the parts of their object that have no effect.
type findingsGetter interface{ GetFindings() []model.Finding }

// IgnoredFindings returns findings for the parts of a valid object that have no effect: labels and annotations that
// count as absent, and those that the value itself reports.
func (k ObjectKey) IgnoredFindings(file string, object Object, value any, view View) []model.Finding {
	var problems []model.Finding
	if k.Kind.IgnoredSettings != nil {
		for _, err := range k.Kind.IgnoredSettings(object, view) {
			problem := k.Problem(file, err.Field, err.ErrorBody())
			problem.Code = model.ValueIgnored
			problems = append(problems, problem)
		}
	}
	if value, ok := value.(findingsGetter); ok {
		problems = append(problems, value.GetFindings()...)
	}
	for i := range problems {
		problems[i].File, problems[i].UID = file, string(object.GetUID())
	}
	return problems
}

// Problems returns a finding for each validation error of an object.
func (k ObjectKey) Problems(file string, errs field.ErrorList) []model.Finding {
	var problems []model.Finding
	for _, err := range errs {
		problems = append(problems, k.Problem(file, err.Field, err.ErrorBody()))
	}
	return problems
}

// Problem returns a finding for an invalid object.
func (k ObjectKey) Problem(file, field, reason string) model.Finding {
	return model.Finding{File: file, Kind: k.Kind.Name, Name: k.Name, Code: model.Invalid, Field: field, Reason: reason}.Sanitized()
}

// SortProblems sorts problems and removes duplicates.
func SortProblems(problems []model.Finding) []model.Finding {
	slices.SortFunc(problems, model.Finding.Compare)
	return slices.Compact(problems)
}
