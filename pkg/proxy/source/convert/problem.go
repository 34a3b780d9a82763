package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Problem says what was left out, where it stands, and why. It holds until the file, or the object, is put right.
type Problem struct {
	File string           // relative to the folder; empty for an object of a cluster
	Kind string           // "Service"; empty if the file or a document of it could not be read
	Name model.ObjectName // without a namespace if the kind is cluster-scoped
	UID  string           // that of an object of a cluster
	Line int              // of the document, for an object that has no name; else zero

	Field  string // "spec.ports[0].port"; empty if no single field is to blame
	Reason string

	// Ignored: the field counts as absent, and the rest of the object is in force. Otherwise the object is refused.
	Ignored bool
}

// Object returns the object as people call it: "Service default/web", "Node node-1". It is empty if there is none to
// name.
func (p Problem) Object() string {
	switch {
	case p.Kind == "":
		return ""
	case p.Line > 0:
		return fmt.Sprintf("%s in the document at line %d", p.Kind, p.Line)
	case p.Name.Namespace == "":
		return p.Kind + " " + printable.Short(p.Name.Name)
	}
	return p.Kind + " " + printable.Short(p.Name.String())
}

// String returns the problem as one line: "services.yaml: Service default/web: spec.ports[0].port: Invalid value:
// 70000: ...".
func (p Problem) String() string {
	var parts []string
	for _, part := range []string{p.File, p.Object(), p.Field, p.Reason} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	sentence := strings.Join(parts, ": ")
	if p.Ignored {
		sentence += "; it counts as absent"
	}
	return sentence
}

// IsRefusal reports whether what the problem is about is refused.
func (p Problem) IsRefusal() bool { return !p.Ignored }

// Error makes a Problem an error.
func (p Problem) Error() string { return p.String() }

// Compare orders problems as they are read: by file, object, field and reason.
func (p Problem) Compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.File, other.File), cmp.Compare(p.Kind, other.Kind), p.Name.Compare(other.Name),
		cmp.Compare(p.UID, other.UID), cmp.Compare(p.Line, other.Line), cmp.Compare(p.Field, other.Field), cmp.Compare(p.Reason, other.Reason))
}

// Refused returns what is wrong with an object of the cluster: a Problem for each validation error.
func Refused(kind *Kind, name model.ObjectName, uid string, errs field.ErrorList) []Problem {
	problems := ObjectKey{kind, name}.Problems("", errs)
	for i := range problems {
		problems[i].UID = uid
	}
	return problems
}

// Ignored returns which labels and annotations of an object count as absent: a Problem for each.
func (k ObjectKey) Ignored(file string, object Object, view View) []Problem {
	if k.Kind.Ignored == nil {
		return nil
	}
	problems := k.Problems(file, k.Kind.Ignored(object, view))
	for i := range problems {
		problems[i].Ignored, problems[i].UID = true, string(object.GetUID())
	}
	return problems
}

// Problems makes a Problem of each validation error of an object.
func (k ObjectKey) Problems(file string, errs field.ErrorList) []Problem {
	var problems []Problem
	for _, err := range errs {
		problems = append(problems, k.Problem(file, err.Field, err.ErrorBody()))
	}
	return problems
}

// Problem says what is wrong with an object.
func (k ObjectKey) Problem(file, field, reason string) Problem {
	return Problem{File: file, Kind: k.Kind.Name, Name: k.Name, Field: field, Reason: reason}.Printable()
}

// Printable makes texts safe to print, whatever the file held: one line, no control characters, not too long. The name
// stays as it is, so that users can look the object up.
func (p Problem) Printable() Problem {
	for _, text := range []*string{&p.File, &p.Kind, &p.Field, &p.Reason} {
		*text = printable.Short(*text)
	}
	return p
}

// SortProblems sorts problems and leaves out repetitions.
func SortProblems(problems []Problem) []Problem {
	slices.SortFunc(problems, Problem.Compare)
	return slices.Compact(problems)
}
