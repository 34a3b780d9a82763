package apiserver

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// streamOf returns a stream that sends no requests.
func streamOf(kind *convert.Kind) *resourceStream {
	return newWatcher(listWatches{}, Options{Log: slog.New(slog.DiscardHandler)}).newStream(resourceRequest{kind, kind.Resource, nil})
}

func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", ResourceVersion: "7"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

func TestTransformKeepsTheValue(t *testing.T) {
	services := streamOf(convert.Services)
	got := services.transform(webService())
	if value, _ := got.value.(*model.Service); value == nil || value.Name != nameOf("web") || len(got.rejected) > 0 || got.uid != "u" {
		t.Errorf("value %v, UID %q, rejected %v; want the Service", got.value, got.uid, got.rejected)
	}
	if again := services.transform(got); again != got {
		t.Error("a stripped object is not passed through")
	}
	headless := webService()
	headless.Spec.ClusterIP, headless.Spec.ClusterIPs = corev1.ClusterIPNone, nil
	if got := services.transform(headless); got.value != nil || len(got.rejected) > 0 {
		t.Errorf("Service that is not ours: value %v, rejected %v; want none", got.value, got.rejected)
	}
}

func TestARejectedObjectIsStoredAsItsProblems(t *testing.T) {
	bad := webService()
	bad.Spec.Ports[0].Port = 70000
	got := streamOf(convert.Services).transform(bad)
	want := []model.Finding{{Kind: convert.ServiceKind, Name: nameOf("web"), UID: "u", Code: model.Invalid,
		Field: "spec.ports[0].port", Reason: "Invalid value: 70000: must be between 1 and 65535, inclusive"}}
	if diff := cmp.Diff(want, got.rejected); diff != "" || got.value != nil {
		t.Errorf("value %v, rejected (-want +got):\n%s", got.value, diff)
	}
}

func TestTransformKeepsNodeLabels(t *testing.T) {
	sent := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Labels: map[string]string{rack: "1", "x": "y"}, Annotations: map[string]string{"large": "text"}}}
	got := streamOf(convert.OtherNodes).transform(sent)
	if diff := cmp.Diff(&model.Node{Name: "n1", Labels: map[string]string{rack: "1", "x": "y"}}, got.value); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

func TestEqualHintsAreInterned(t *testing.T) {
	stream := streamOf(convert.EndpointSlices)
	endpoint := func(name string) model.SliceEndpoint {
		return stream.transform(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: new("n1"),
				Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "b"}}}}},
		}).value.(*model.EndpointSlice).Endpoints[0]
	}
	first, second := endpoint("a"), endpoint("b")
	if diff := cmp.Diff([]string{"a", "b"}, second.HintZones); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
	if &first.HintZones[0] != &second.HintZones[0] {
		t.Error("two endpoints with the same hints do not share the list")
	}
}

func TestInternerIsClearedWhenFull(t *testing.T) {
	var names interner
	for i := range maxInterned + 1 {
		names.string(text("%d", i))
		names.list([]string{text("%d", i)})
	}
	if len(names.strings) != 1 || len(names.lists) != 1 {
		t.Errorf("%d strings and %d lists after overflow, want 1 and 1", len(names.strings), len(names.lists))
	}
}
