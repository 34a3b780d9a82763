package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", ResourceVersion: "7"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

func stripped[T any](t *testing.T, transform cache.TransformFunc, sent any) *object[T] {
	t.Helper()
	result, err := transform(sent)
	if err != nil {
		t.Fatal(err)
	}
	return result.(*object[T])
}

func TestWhatIsCachedIsTheValueAndWhatInformersNeed(t *testing.T) {
	transform := stripService("")
	got := stripped[*model.Service](t, transform, webService())
	if got.value == nil || got.value.Name != nameOf("web") || len(got.refused) > 0 {
		t.Errorf("value %v, refused %v; want the Service", got.value, got.refused)
	}
	if again := stripped[*model.Service](t, transform, got); again != got {
		t.Error("what is stripped already is not passed through")
	}
	key, err := cache.MetaNamespaceKeyFunc(got)
	if meta := got.GetObjectMeta(); err != nil || key != "default/web" || meta.GetUID() != "u" || meta.GetResourceVersion() != "7" {
		t.Errorf("key %q (%v), UID %q, version %q", key, err, meta.GetUID(), meta.GetResourceVersion())
	}
}

func TestWhatIsRefusedIsCachedWithItsProblems(t *testing.T) {
	bad := webService()
	bad.Spec.Ports[0].Port = 70000
	got := stripped[*model.Service](t, stripService(""), bad)
	want := []convert.Problem{{Object: "Service default/web", Field: "spec.ports[0].port",
		Reason: "Invalid value: 70000: must be between 1 and 65535, inclusive"}}
	if diff := cmp.Diff(want, got.refused); diff != "" || got.value != nil {
		t.Errorf("value %v, refused (-want +got):\n%s", got.value, diff)
	}
}

func TestHandlersTakeTombstones(t *testing.T) {
	object := &object[*model.Service]{name: nameOf("web")}
	for name, deleted := range map[string]any{
		"an object":   object,
		"a tombstone": cache.DeletedFinalStateUnknown{Key: "default/web", Obj: object},
		"a tombstone of which nothing is left but the name": cache.DeletedFinalStateUnknown{Key: "default/web"},
	} {
		t.Run(name, func(t *testing.T) {
			var gone []model.ObjectName
			handler := handle[*model.Service](nil, func(name model.ObjectName) { gone = append(gone, name) })
			handler.OnDelete(deleted)
			if diff := cmp.Diff([]model.ObjectName{nameOf("web")}, gone); diff != "" {
				t.Errorf("gone (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfOtherNodesTheLabelsInUseAreCached(t *testing.T) {
	sent := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Labels: map[string]string{rack: "1", "x": "y"}, Annotations: map[string]string{"large": "text"}}}
	got := stripped[*model.Node](t, stripMetadata(keySet{rack: true, row: true}), sent)
	if diff := cmp.Diff(&model.Node{Name: "n1", Labels: map[string]string{rack: "1"}}, got.value); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

func TestEndpointsShareWhatTheyHaveInCommon(t *testing.T) {
	transform := stripSlice()
	slice := func(name string) *object[*model.EndpointSlice] {
		return stripped[*model.EndpointSlice](t, transform, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: new("n1"),
				Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "b"}}}}},
		})
	}
	first, second := slice("a").value.Endpoints[0], slice("b").value.Endpoints[0]
	if diff := cmp.Diff([]string{"a", "b"}, second.HintZones); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
	if &first.HintZones[0] != &second.HintZones[0] {
		t.Error("two endpoints with the same hints hold two lists of them")
	}
}

func TestAnInternerForgetsWhenItIsFull(t *testing.T) {
	var names interner
	for i := range maxInterned + 1 {
		names.string(text("%d", i))
		names.list([]string{text("%d", i)})
	}
	if len(names.strings) != 1 || len(names.lists) != 1 {
		t.Errorf("it holds %d strings and %d lists after one too many, want 1 and 1", len(names.strings), len(names.lists))
	}
}
