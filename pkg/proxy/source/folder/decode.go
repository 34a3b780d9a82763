package folder

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// typesRead are the types of the objects that the proxy reads. Others are none of its business.
var typesRead = []manifest.Type{
	{APIVersion: "v1", Kind: convert.ServiceKind},
	{APIVersion: "v1", Kind: convert.NodeKind},
	{APIVersion: "discovery.k8s.io/v1", Kind: convert.EndpointSliceKind},
	{APIVersion: "networking.k8s.io/v1", Kind: convert.ServiceCIDRKind},
}

// decode reads the objects of a file. Whatever is wrong becomes a Problem of the smallest part that it concerns.
func decode(file string, text []byte) contents {
	d := decoder{file: file, out: contents{isComplete: true}}
	format, _ := manifest.FormatOf(file)
	for part := range manifest.Parts(format, text, typesRead...) {
		switch {
		case part.Fault != nil:
			d.unreadable(&part, part.Fault)
		case !slices.Contains(typesRead, part.Type):
		case part.Name == "":
			d.unreadable(&part, &manifest.Fault{Field: "metadata.name", Reason: "Required value"})
		default:
			d.readObject(&part)
		}
	}
	return d.out
}

// decoder collects what one file holds.
type decoder struct {
	file string
	out  contents
}

// unreadable records that something in the file could not be told: from now on, an object's absence from the file proves
// nothing.
func (d *decoder) unreadable(part *manifest.Part, fault *manifest.Fault) {
	object, fieldPath, reason := "", part.Field(fault.Field), fault.Reason
	switch {
	case fault.Line > 0:
		reason = fmt.Sprintf("line %d: %s", fault.Line, reason)
	case part.Type.Kind != "":
		object = fmt.Sprintf("%s in the document at line %d", part.Type.Kind, part.Line)
	default:
		reason = fmt.Sprintf("%s (document at line %d)", reason, part.Line)
	}
	d.out.problems = append(d.out.problems, convert.NewProblem(d.file, object, fieldPath, reason))
	d.out.isComplete = false
}

// keyOf names the object of a part. In a folder there was no API server to fill in the namespace.
func keyOf(part *manifest.Part) convert.ObjectKey {
	key := convert.ObjectKey{Kind: part.Type.Kind, Name: model.ObjectName{Namespace: part.Namespace, Name: part.Name}}
	switch {
	case key.IsClusterScoped():
		key.Name.Namespace = "" // a namespace on such an object is refused below, and names no other one
	case key.Name.Namespace == "":
		key.Name.Namespace = metav1.NamespaceDefault
	}
	return key
}
