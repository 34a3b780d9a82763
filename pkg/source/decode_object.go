package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// readObject reads one object of a kind that the proxy knows. In a folder there was no API server to fill in the defaults.
func (d *decoder) readObject(p part, key objectKey) {
	switch {
	case key.isClusterScoped():
		key.name.Namespace = "" // a namespace on such an object is refused below, and names no other one
	case key.name.Namespace == "":
		key.name.Namespace = metav1.NamespaceDefault
	}
	c := claim{key: key}
	switch key.kind {
	case ServiceKind:
		d.readService(p, &c)
	case EndpointSliceKind:
		d.readSlice(p, &c)
	case NodeKind:
		d.readNode(p, &c)
	case ServiceCIDRKind:
		d.readServiceCIDR(p, &c)
	}
	d.out.claims = append(d.out.claims, c)
}

func (d *decoder) readService(p part, c *claim) {
	var service corev1.Service
	if c.problems = d.strictly(p, c.key, &service); !c.isGood() {
		return
	}
	service.Namespace = c.key.name.Namespace
	value, errs := Service(&service, "")
	c.object.service, c.problems = value, problemsOf(d.file, c.key.String(), errs)
}

func (d *decoder) readSlice(p part, c *claim) {
	var slice discoveryv1.EndpointSlice
	if c.problems = d.strictly(p, c.key, &slice); !c.isGood() {
		return
	}
	slice.Namespace = c.key.name.Namespace
	defaultPortNames(&slice)
	value, errs := EndpointSlice(&slice)
	c.object.slice, c.problems = value, problemsOf(d.file, c.key.String(), errs)
}

func (d *decoder) readNode(p part, c *claim) {
	var node corev1.Node
	if c.problems = d.strictly(p, c.key, &node); !c.isGood() {
		return
	}
	value, errs := Node(&node)
	c.object.node, c.problems = value, problemsOf(d.file, c.key.String(), errs)
}

func (d *decoder) readServiceCIDR(p part, c *claim) {
	var object networkingv1.ServiceCIDR
	if c.problems = d.strictly(p, c.key, &object); !c.isGood() {
		return
	}
	value, errs := ServiceCIDR(&object)
	if c.problems = problemsOf(d.file, c.key.String(), errs); c.isGood() {
		c.object.serviceCIDR = &value
	}
}

// defaultPortNames names ports as the API server does: a port without a name has the empty one, and belongs to the Service
// port without a name.
func defaultPortNames(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		if slice.Ports[i].Name == nil {
			slice.Ports[i].Name = new(string)
		}
	}
}

// strictly decodes an object and returns a Problem for each field that is unknown, set twice or of the wrong type.
func (d *decoder) strictly(p part, key objectKey, into any) []Problem {
	strict, err := kjson.UnmarshalStrict(p.json, into)
	if err != nil {
		strict = append(strict, err)
	}
	var problems []Problem
	for _, err := range strict {
		fieldPath, reason := describe(err)
		problems = append(problems, newProblem(d.file, key.String(), fieldPath, reason))
	}
	for _, duplicate := range p.duplicates {
		if rest, ok := within(duplicate, p.path); ok {
			problems = append(problems, newProblem(d.file, key.String(), rest, "duplicate field"))
		}
	}
	return problems
}

// fieldError is what sigs.k8s.io/json returns for a field that is unknown or set twice.
type fieldError interface {
	error
	FieldPath() string
}

// describe tells the field and the reason of an error of the JSON decoder.
func describe(err error) (fieldPath, reason string) {
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return mistyped.Field, fmt.Sprintf("must be %s, not %s", mistyped.Type, mistyped.Value)
	}
	if strict, ok := errors.AsType[fieldError](err); ok {
		reason, _, _ := strings.Cut(strict.Error(), ` "`)
		return strict.FieldPath(), reason
	}
	return "", err.Error()
}

// join appends a field to the path of what holds it.
func join(parent, child string) string {
	return strings.Trim(parent+"."+child, ".")
}

// within returns the rest of a path below a parent.
func within(fieldPath, parent string) (rest string, ok bool) {
	if parent == "" {
		return fieldPath, true
	}
	return strings.CutPrefix(fieldPath, parent+".")
}
