package convert

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Problem says what was left out, where it stands, and why. It holds until the file, or the object, is put right.
type Problem struct {
	File   string // relative to the folder; empty for an object of a cluster
	Object string // "Service default/web"; empty if the file or a document of it could not be read
	Field  string // "spec.ports[0].port"; empty if no single field is to blame
	Reason string
}

// String returns the problem as one line: "services.yaml: Service default/web: spec.ports[0].port: Invalid value: 70000: ...".
func (p Problem) String() string {
	var parts []string
	for _, part := range []string{p.File, p.Object, p.Field, p.Reason} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Error makes a Problem an error.
func (p Problem) Error() string { return p.String() }

// Compare orders problems as they are read: by file, object, field and reason.
func (p Problem) Compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.File, other.File), cmp.Compare(p.Object, other.Object),
		cmp.Compare(p.Field, other.Field), cmp.Compare(p.Reason, other.Reason))
}

// Refused returns what is wrong with an object of the cluster: a Problem for each validation error. kind is one of ServiceKind,
// EndpointSliceKind, NodeKind and ServiceCIDRKind.
func Refused(kind string, name model.ObjectName, errs field.ErrorList) []Problem {
	return ProblemsOf("", ObjectKey{kind, name}.String(), errs)
}

// ProblemsOf makes a Problem of each validation error of an object.
func ProblemsOf(file, object string, errs field.ErrorList) []Problem {
	var problems []Problem
	for _, err := range errs {
		problems = append(problems, NewProblem(file, object, err.Field, err.ErrorBody()))
	}
	return problems
}

// NewProblem makes a Problem that is safe to print, whatever the file held: one line, no control characters, not too long.
func NewProblem(file, object, field, reason string) Problem {
	return Problem{
		File: manifest.Printable(file), Object: manifest.Printable(object),
		Field: manifest.Printable(field), Reason: manifest.Printable(reason),
	}
}

// SortProblems sorts problems and leaves out repetitions.
func SortProblems(problems []Problem) []Problem {
	slices.SortFunc(problems, Problem.Compare)
	return slices.Compact(problems)
}
