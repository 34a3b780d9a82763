package server

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	apirequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	apiuser "k8s.io/apiserver/pkg/authentication/user"
)

// reviewCase is a review from the API server's own code, and the request against which that code checks the response.
type reviewCase struct {
	uid      types.UID
	mutating bool
	review   *admissionv1.AdmissionReview
	body     []byte // its JSON
}

// verified returns the response as the API server accepts it. It ends the test if the API server would not accept it.
func (c reviewCase) verified(t testing.TB, body []byte) *apirequest.AdmissionResponse {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	response, err := apirequest.VerifyAdmissionResponse(c.uid, c.mutating, &review)
	if err != nil {
		t.Fatalf("the API server rejects the response: %v\n%s", err, body)
	}
	return response
}

// apiRequest is a request to an API server.
type apiRequest struct {
	operation   admission.Operation
	object, old runtime.Object
	subresource string
	dryRun      bool
}

var alice = &apiuser.DefaultInfo{
	Name: "alice", UID: "1", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"scopes": {"a"}},
}

// review returns the API server's review of a request for a path.
func (r apiRequest) review(t testing.TB, path string) reviewCase {
	t.Helper()
	kind, resource := corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithResource("services")
	var namespace, name string
	switch object := firstNonNil(r.object, r.old).(type) {
	case *corev1.Service:
		namespace, name = object.Namespace, object.Name
	case *corev1.Namespace:
		kind, resource = corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithResource("namespaces")
		namespace, name = object.Name, object.Name
	default:
		kind, resource = corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	}
	attributes := admission.NewAttributesRecord(
		r.object, r.old, kind, namespace, name, resource, r.subresource, r.operation, &metav1.CreateOptions{}, r.dryRun, alice)
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind,
		VersionedObject: typed(r.object, kind), VersionedOldObject: typed(r.old, kind),
	}
	invocation := &generic.WebhookInvocation{Kind: kind, Resource: resource, Subresource: r.subresource}
	review := apirequest.CreateV1AdmissionReview("705ab4f5-6393-11e8-b7cc-42010a800002", versioned, invocation)
	tagged := review.DeepCopy() // the API server's encoder adds the type
	tagged.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(tagged)
	if err != nil {
		t.Fatal(err)
	}
	return reviewCase{review.Request.UID, path == DefaultServicesPath, review, body}
}

func firstNonNil(a, b runtime.Object) runtime.Object {
	if a != nil {
		return a
	}
	return b
}

func typed(object runtime.Object, kind schema.GroupVersionKind) admission.LazyObject {
	if object == nil {
		return admission.LazyObject{}
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kind)
	return admission.NewLazyObject(object)
}

// service returns a Service as an API server sends it: with defaults, and with the entries of two field managers.
func service(change ...func(*corev1.Service)) *corev1.Service {
	cluster, policy := corev1.ServiceInternalTrafficPolicyCluster, corev1.IPFamilyPolicySingleStack
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "0b1c", ResourceVersion: "4711", Generation: 2,
			Labels: map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop"},
			Annotations: map[string]string{
				"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}}`,
			},
			ManagedFields: []metav1.ManagedFieldsEntry{managedFieldsOf("kubectl-client-side-apply"), managedFieldsOf("helm")},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, SessionAffinity: corev1.ServiceAffinityNone,
			InternalTrafficPolicy: &cluster, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &policy,
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "https", Port: 443, Protocol: corev1.ProtocolTCP},
			},
		},
	}
	for _, change := range change {
		change(s)
	}
	return s
}

func managedFieldsOf(manager string) metav1.ManagedFieldsEntry {
	now := metav1.Unix(1_700_000_000, 0)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` +
			`"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}},` +
			`"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{}}},"f:spec":{"f:internalTrafficPolicy":{},` +
			`"f:ports":{".":{},"k:{\"port\":443,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}},` +
			`"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},` +
			`"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`),
	}
}

func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

func namespace(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", Labels: map[string]string{"kubernetes.io/metadata.name": "shop"}, Annotations: annotations,
	}}
}
