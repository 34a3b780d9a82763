package webhook_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

const namespace = "shop"

// reviewID is the UID of all reviews.
const reviewID types.UID = "705ab4f5-6393-11e8-b7cc-42010a800002"

// kind is a kind of review, or several kinds in a fixed order.
type kind struct {
	name    string
	reviews []review
}

func (k kind) review(number int) review { return k.reviews[number%len(k.reviews)] }

// size returns the average size of a body, in bytes.
func (k kind) size() int {
	sum := 0
	for _, review := range k.reviews {
		sum += review.size
	}
	return sum / len(k.reviews)
}

// review is a review in wire format.
type review struct {
	request  []byte
	size     int // of the body
	response response
}

// response is the expected response.
type response struct {
	denied, warned string // ID of the rule
	patched        bool
}

// fewPorts and manyPorts are the numbers of ports of a typical Service, of about 4 kB, and of one of about 100 kB.
const fewPorts, manyPorts = 7, 270

// firstPort is the number of the first port.
const firstPort = 8000

// kinds returns the kinds of reviews.
func kinds(t testing.TB) []kind {
	plain := service(t, fewPorts, nil)
	valid := service(t, fewPorts, map[string]string{policy.TopologyKeysAnnotation: "topology.kubernetes.io/zone, *"})
	invalid := service(t, fewPorts, map[string]string{policy.TopologyKeysAnnotation: "a b,zone,zone"})
	strict := service(t, fewPorts, map[string]string{policy.TopologyKeysAnnotation: "topology.kubernetes.io/zone"})
	large := service(t, manyPorts, map[string]string{policy.TopologyKeysAnnotation: "topology.kubernetes.io/zone, *"})
	kindOf := func(name, path string, operation admissionv1.Operation, object, old []byte, response response) kind {
		return kind{name, []review{newReview(t, path, operation, object, old, response)}}
	}
	return []kind{
		kindOf("default", server.DefaultServicesPath, admissionv1.Create, plain, nil, response{patched: true}),
		kindOf("allow", server.ValidateServicesPath, admissionv1.Create, valid, nil, response{}),
		kindOf("update", server.ValidateServicesPath, admissionv1.Update, valid, plain, response{}),
		kindOf("warn", server.ValidateServicesPath, admissionv1.Create, strict, nil, response{warned: "SVC027"}),
		kindOf("deny", server.ValidateServicesPath, admissionv1.Create, invalid, nil, response{denied: "SVC003"}),
		kindOf("large", server.ValidateServicesPath, admissionv1.Create, large, nil, response{}),
	}
}

// shares are the numbers of reviews of each kind in a mix of twenty. Large reviews are measured separately: a Service
// of 100 kB takes ten times as long as any other, and hardly any cluster has one.
var shares = map[string]int{"default": 6, "allow": 4, "update": 6, "warn": 2, "deny": 2}

// mix returns a mix of all kinds, alternating between the kinds that have reviews left.
func mix(t testing.TB) kind {
	mixed := kind{name: "mix"}
	for round := 0; len(mixed.reviews) < 20; round++ {
		for _, kind := range kinds(t) {
			if round < shares[kind.name] {
				mixed.reviews = append(mixed.reviews, kind.reviews...)
			}
		}
	}
	return mixed
}

func newReview(t testing.TB, path string, operation admissionv1.Operation, object, old []byte, response response) review {
	t.Helper()
	admission := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:             reviewID,
			Kind:            metav1.GroupVersionKind{Version: "v1", Kind: "Service"},
			Resource:        metav1.GroupVersionResource{Version: "v1", Resource: "services"},
			RequestKind:     &metav1.GroupVersionKind{Version: "v1", Kind: "Service"},
			RequestResource: &metav1.GroupVersionResource{Version: "v1", Resource: "services"},
			Name:            "web", Namespace: namespace, Operation: operation,
			UserInfo: authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
			DryRun:  new(bool),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}`)},
		},
	}
	body := marshal(t, admission)
	head := fmt.Sprintf("POST %s?timeout=2s HTTP/1.1\r\nHost: %s:443\r\nUser-Agent: kube-apiserver-admission\r\n"+
		"Content-Length: %d\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
		path, serverName, len(body))
	return review{request: append([]byte(head), body...), size: len(body), response: response}
}

// service returns a Service that was applied with kubectl, as an API server sends it: with its defaults and its managed
// fields.
func service(t testing.TB, ports int, annotations map[string]string) []byte {
	t.Helper()
	svc := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: namespace, Annotations: map[string]string{},
			Labels: map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": namespace},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app.kubernetes.io/name": "web"},
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		},
	}
	for port := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("port-%d", port), Port: int32(firstPort + port), Protocol: corev1.ProtocolTCP,
		})
	}
	maps.Copy(svc.Annotations, annotations)
	svc.Annotations[corev1.LastAppliedConfigAnnotation] = string(marshal(t, svc))
	now := metav1.Unix(1_700_000_000, 0)
	svc.UID, svc.ResourceVersion, svc.CreationTimestamp = "0b1c6f3e-7c5a-4a9e-9d59-2f6b6f0f7a52", "4711", now
	for _, manager := range []string{"kubectl-client-side-apply", "helm"} {
		svc.ManagedFields = append(svc.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(managedFields(ports)),
		})
	}
	return marshal(t, svc)
}

func managedFields(ports int) string {
	var text strings.Builder
	text.WriteString(`{"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}},` +
		`"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{}}},` +
		`"f:spec":{"f:internalTrafficPolicy":{},"f:selector":{},"f:sessionAffinity":{},"f:type":{},"f:ports":{".":{}`)
	for port := range ports {
		fmt.Fprintf(&text, `,"k:{\"port\":%d,\"protocol\":\"TCP\"}":`, firstPort+port)
		text.WriteString(`{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}`)
	}
	text.WriteString("}}}")
	return text.String()
}

func marshal(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
