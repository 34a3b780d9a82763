package manifests

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// kindOf maps types to the kinds that the proxy reads. It ignores all others.
var kindOf = func() map[manifest.Type]*convert.Kind {
	kindOf := map[manifest.Type]*convert.Kind{}
	for _, kind := range convert.Kinds {
		kindOf[manifest.Type{APIVersion: kind.Group.String(), Kind: kind.Name}] = kind
	}
	return kindOf
}()

var types = slices.Collect(maps.Keys(kindOf))

// decode reads the objects of a file that are in a view. Every error becomes a finding about the smallest part that it
// affects.
func decode(file string, text []byte, view convert.View) contents {
	d := decoder{file: file, view: view, out: contents{inventory: convert.Inventory{}, isComplete: true}}
	d.read(text, d.readObject)
	return d.out
}

// decoder collects the contents of one file.
type decoder struct {
	file string
	view convert.View
	out  contents
}

// read calls object for each object of a type that the proxy reads, records the problems of the rest, and counts all
// objects.
func (d *decoder) read(text []byte, visit func(*manifest.Part)) {
	for part := range manifest.Parts(manifest.FormatOfText(d.file, text), text, types...) {
		if part.Type.Kind != "" {
			d.out.inventory[convert.Type(part.Type)]++
		}
		switch {
		case part.Fault != nil:
			d.addFault(&part)
		case kindOf[part.Type] == nil:
		case part.Name == "":
			d.addUnreadable(&part, &manifest.ParseError{Field: "metadata.name", Reason: "Required value"})
		default:
			visit(&part)
		}
	}
}

// addFault records the fault of a part that could not be read, or of which something was ignored.
func (d *decoder) addFault(part *manifest.Part) {
	wasComplete := d.out.isComplete
	d.addUnreadable(part, part.Fault)
	if part.Fault.IsForeign { // an unknown field of a list, whose items are read nevertheless
		d.out.problems[len(d.out.problems)-1].Code, d.out.isComplete = model.ValueIgnored, wasComplete
	}
}

// decodeObject decodes an object as API clients do and sets defaults as an API server would. It returns the reasons why
// the object is invalid, or else the parts that count as absent.
func decodeObject(file string, part *manifest.Part, key convert.ObjectKey, object convert.Object) (rejected, ignored []model.Finding) {
	for _, fault := range part.DecodeAsClient(object) {
		problem := key.Problem(file, fault.Field, fault.Reason)
		if fault.IsForeign {
			problem.Code = model.ValueIgnored
			ignored = append(ignored, problem)
		} else {
			rejected = append(rejected, problem)
		}
	}
	if len(rejected) > 0 {
		return rejected, nil
	}
	if !key.Kind.IsClusterScoped {
		object.SetNamespace(key.Name.Namespace)
	}
	if key.Kind.Complete != nil {
		key.Kind.Complete(object)
	}
	return nil, ignored
}

// addUnreadable records that a part of the file could not be read. Then the absence of an object from the file proves
// nothing.
func (d *decoder) addUnreadable(part *manifest.Part, fault *manifest.ParseError) {
	problem := model.Finding{File: d.file, Code: model.Invalid, Field: part.Field(fault.Field), Reason: fault.Reason}
	switch {
	case fault.Line > 0:
		problem.Reason = fmt.Sprintf("line %d: %s", fault.Line, fault.Reason)
	case part.Type.Kind != "":
		problem.Kind, problem.Line = part.Type.Kind, part.Line
	case part.JSON == nil: // the file is not text
	default:
		problem.Reason = fmt.Sprintf("%s (document at line %d)", fault.Reason, part.Line)
	}
	d.out.problems = append(d.out.problems, problem.Sanitized())
	d.out.isComplete = false
}

// readObject reads one object of a type that the proxy reads.
func (d *decoder) readObject(part *manifest.Part) {
	v := objectVersion{key: keyOf(part)}
	kind, object := v.key.Kind, v.key.Kind.New()
	var ignored []model.Finding
	if v.problems, ignored = decodeObject(d.file, part, v.key, object); v.isValid() {
		value, errs := kind.Convert(object, d.view)
		v.value, v.problems = value, v.key.Problems(d.file, errs)
		if v.isValid() {
			v.ignored = append(ignored, v.key.IgnoredFindings(d.file, object, value, d.view)...)
		}
	}
	d.out.objects = append(d.out.objects, v)
}

// keyOf returns the key of a part's object. In a folder no API server has set the namespace.
func keyOf(part *manifest.Part) convert.ObjectKey {
	key := convert.ObjectKey{Kind: kindOf[part.Type], Name: model.ObjectName{Namespace: part.Namespace, Name: part.Name}}
	switch {
	case key.Kind.IsClusterScoped:
		key.Name.Namespace = "" // a namespace on such an object is rejected later, and names no other one
	case key.Name.Namespace == "":
		key.Name.Namespace = metav1.NamespaceDefault
	}
	return key
}
