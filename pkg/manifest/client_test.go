package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// clientLines are the errors of an object that is decoded as API clients do. An error with IsForeign begins with "(".
func clientLines(text string, into any) []string {
	var lines []string
	for part := range Parts(YAML, []byte(text), serviceType, nodeType, Type{"discovery.k8s.io/v1", "EndpointSlice"}) {
		if part.Fault != nil {
			return []string{part.Fault.Reason}
		}
		for _, fault := range part.DecodeAsClient(into) {
			line := strings.TrimPrefix(fault.Field+": "+fault.Reason, ": ")
			if fault.IsForeign {
				line = "(" + fault.Field + ")"
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestDecodeAsClientUnknownFields(t *testing.T) {
	const (
		service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
		node    = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
		slice   = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1}\n"
	)
	for name, test := range map[string]struct {
		text string
		into any
		want []string
	}{
		"no unknown field": {service + "spec: {clusterIP: 10.96.0.1}\n", &corev1.Service{}, nil},
		"a new field":      {service + "spec: {newIn138: x}\n", &corev1.Service{}, []string{"(spec.newIn138)"}},
		"a new field that contains known ones": {
			service + "spec: {newIn138: {type: x, loadBalancerSourceRange: []}}\n", &corev1.Service{}, []string{"(spec.newIn138)"},
		},
		"a new field next to the spec": {slice + "newField: 3\n", &discoveryv1.EndpointSlice{}, []string{"(newField)"}},
		"a new field of the status":    {node + "status: {newThing: {a: b}}\n", &corev1.Node{}, []string{"(status.newThing)"}},
		"a removed field":              {service + "spec: {topologyKeys: ['*']}\n", &corev1.Service{}, []string{"(spec.topologyKeys)"}},
		"a removed field of metadata":  {service[:len(service)-2] + ", clusterName: a}\n", &corev1.Service{}, []string{"(metadata.clusterName)"}},
		"a new field of two endpoints": {
			slice + "endpoints: [{zone: a}, {brandNew: 1}, {brandNew: 2}]\n", &discoveryv1.EndpointSlice{}, []string{"(endpoints[1].brandNew)"},
		},
		"a new field after one that is not decoded": {
			node[:len(node)-2] + ", managedFields: [{fieldsV1: {f:spec: {a: 1}}}]}\nnewField: 3\n", &corev1.Node{}, []string{"(newField)"},
		},
		"any label and annotation": {
			service[:len(service)-2] + ", labels: {newIn138: x}, annotations: {spec: x}}\nspec: {selector: {spek: x}}\n", &corev1.Service{}, nil,
		},
		"the singular of a list": {
			service + "spec: {loadBalancerSourceRange: [10.0.0.0/8]}\n", &corev1.Service{},
			[]string{"spec.loadBalancerSourceRange: unknown field; did you mean spec.loadBalancerSourceRanges?"},
		},
		"the singular of another list": {
			service + "spec: {ipFamily: IPv4}\n", &corev1.Service{}, []string{"spec.ipFamily: unknown field; did you mean spec.ipFamilies?"},
		},
		"a field in another case": {
			service + "spec: {LoadbalancerSourceRanges: [10.0.0.0/8]}\n", &corev1.Service{},
			[]string{"spec.LoadbalancerSourceRanges: unknown field; did you mean spec.loadBalancerSourceRanges?"},
		},
		"a field with dashes": {
			service + "spec: {internal-traffic-policy: Local}\n", &corev1.Service{},
			[]string{"spec.internal-traffic-policy: unknown field; did you mean spec.internalTrafficPolicy?"},
		},
		"a field of the spec next to it": {
			service + "loadBalancerSourceRanges: [10.0.0.0/8]\n", &corev1.Service{},
			[]string{"loadBalancerSourceRanges: unknown field; did you mean spec.loadBalancerSourceRanges?"},
		},
		"a field of the spec in a port": {
			service + "spec: {ports: [{port: 80}, {port: 81, internalTrafficPolicy: Local}]}\n", &corev1.Service{},
			[]string{"spec.ports[1].internalTrafficPolicy: unknown field; did you mean spec.internalTrafficPolicy?"},
		},
		"annotations in the spec": {
			service + "spec: {annotations: {a: b}}\n", &corev1.Service{},
			[]string{"spec.annotations: unknown field; did you mean metadata.annotations?"},
		},
		"a typo in a condition": {
			slice + "endpoints: [{conditions: {redy: false}}]\n", &discoveryv1.EndpointSlice{},
			[]string{"endpoints[0].conditions.redy: unknown field; did you mean endpoints[0].conditions.ready?"},
		},
		"a wrong type next to a new field": {
			service + "spec: {newIn138: x, ports: [{port: http}]}\n", &corev1.Service{}, []string{"spec.ports.port: must be int32, not string"},
		},
		"a field that is set twice in JSON next to a new one": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"newIn138":1,"type":"a","type":"b"}}`, &corev1.Service{},
			[]string{"spec.type: duplicate field", "(spec.newIn138)"},
		},
		"a new field that is set twice in YAML": {
			service + "spec: {newIn138: 1, newIn138: 2}\n", &corev1.Service{}, []string{"(spec.newIn138)", "spec.newIn138: duplicate field"},
		},
		"a name with dots": {
			service + "spec: {type.newIn138: 1}\n", &corev1.Service{}, []string{"(spec.type.newIn138)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, clientLines(test.text, test.into)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecodeAsClientReadsKnownFields checks that the object is valid without the unknown field.
func TestDecodeAsClientReadsKnownFields(t *testing.T) {
	var service corev1.Service
	clientLines("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {newIn138: x, clusterIP: 10.96.0.1}\n", &service)
	if service.Name != "web" || service.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("decoded %+v, want the name web and the clusterIP 10.96.0.1", service)
	}
}

func TestDecodeAsClientLimitsErrors(t *testing.T) {
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
	for i := range 90 {
		text += fmt.Sprintf("newIn%d: 1\nnewIn%[1]d: 1\n", 1000+i)
	}
	if lines := clientLines(text+"Spec: {}\n", &corev1.Service{}); len(lines) < maxUnknownFields ||
		len(lines) > 2*maxUnknownFields+maxDuplicates ||
		lines[0] != "Spec: unknown field; did you mean spec?" {
		t.Errorf("%d errors, the first: %.100q", len(lines), lines[:min(3, len(lines))])
	}
}

// FuzzDecodeAsClient compares it with strict decoding. Input that strict decoding accepts, or rejects for any reason
// but an unknown field, has the same result. An unknown field is always reported.
func FuzzDecodeAsClient(f *testing.F) {
	for _, spec := range []string{
		`{"newIn138":1}`, `{"type":"a","type":"b"}`, `{"ports":[{"port":80,"new":{"a":[1,{}]}}]}`, `{"ports":5}`, `5`, `null`, `{"Type":1}`,
		`{"selector":{"a":"b","a":"c"}}`, `{"ports":[{"targetPort":{"a":1,"a":2}}]}`, `{"sessionAffinityConfig":{"clientIP":{"x":null}}}`,
	} {
		f.Add([]byte(spec))
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		part := Part{JSON: append(append([]byte(`{"metadata":{"name":"a"},"spec":`), spec...), '}')}
		strict, asClient := part.Decode(&corev1.Service{}), part.DecodeAsClient(&corev1.Service{})
		var unknown, otherErrs, foreign, rejected int
		for _, fault := range strict {
			if fault.Reason == UnknownField {
				unknown++
			} else {
				otherErrs++
			}
		}
		for _, fault := range asClient {
			if fault.IsForeign {
				foreign++
			} else {
				rejected++
			}
		}
		switch {
		case (len(strict) == 0) != (len(asClient) == 0):
			t.Errorf("%s: strict errors %v, client errors %v", part.JSON, strict, asClient)
		case otherErrs > 0 && rejected == 0:
			t.Errorf("%s: strict errors %v, client errors only %v", part.JSON, strict, asClient)
		case unknown == 0 && foreign > 0:
			t.Errorf("%s: strict errors %v, client errors %v", part.JSON, strict, asClient)
		}
	})
}
