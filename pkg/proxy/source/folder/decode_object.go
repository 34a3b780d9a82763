package folder

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// readObject reads one object of a type that the proxy reads.
func (d *decoder) readObject(p *manifest.Part) {
	c := claim{key: keyOf(p)}
	switch c.key.Kind {
	case convert.ServiceKind:
		d.readService(p, &c)
	case convert.EndpointSliceKind:
		d.readSlice(p, &c)
	case convert.NodeKind:
		d.readNode(p, &c)
	case convert.ServiceCIDRKind:
		d.readServiceCIDR(p, &c)
	}
	d.out.claims = append(d.out.claims, c)
}

func (d *decoder) readService(p *manifest.Part, c *claim) {
	var service corev1.Service
	if c.problems = d.strictly(p, c.key, &service); !c.isGood() {
		return
	}
	service.Namespace = c.key.Name.Namespace
	value, errs := convert.Service(&service, "")
	c.object.service, c.problems = value, convert.ProblemsOf(d.file, c.key.String(), errs)
}

func (d *decoder) readSlice(p *manifest.Part, c *claim) {
	var slice discoveryv1.EndpointSlice
	if c.problems = d.strictly(p, c.key, &slice); !c.isGood() {
		return
	}
	slice.Namespace = c.key.Name.Namespace
	defaultPortNames(&slice)
	value, errs := convert.EndpointSlice(&slice)
	c.object.slice, c.problems = value, convert.ProblemsOf(d.file, c.key.String(), errs)
}

func (d *decoder) readNode(p *manifest.Part, c *claim) {
	var node corev1.Node
	if c.problems = d.strictly(p, c.key, &node); !c.isGood() {
		return
	}
	value, errs := convert.Node(&node)
	c.object.node, c.problems = value, convert.ProblemsOf(d.file, c.key.String(), errs)
}

func (d *decoder) readServiceCIDR(p *manifest.Part, c *claim) {
	var object networkingv1.ServiceCIDR
	if c.problems = d.strictly(p, c.key, &object); !c.isGood() {
		return
	}
	value, errs := convert.ServiceCIDR(&object)
	if c.problems = convert.ProblemsOf(d.file, c.key.String(), errs); c.isGood() {
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
func (d *decoder) strictly(p *manifest.Part, key convert.ObjectKey, into any) []convert.Problem {
	var problems []convert.Problem
	for _, fault := range p.Decode(into) {
		problems = append(problems, convert.NewProblem(d.file, key.String(), fault.Field, fault.Reason))
	}
	return problems
}
