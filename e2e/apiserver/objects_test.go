package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

const (
	rackLabel = "example.com/rack"
	zoneLabel = "topology.kubernetes.io/zone"
)

// writer writes to the API server, in a namespace for its test. The objects that it creates are deleted when the test
// ends.
type writer struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
}

var namespaces atomic.Int32

func newWriter(t *testing.T) *writer {
	t.Helper()
	client, err := kubernetes.NewForConfig(admin())
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, client: client, namespace: fmt.Sprintf("test-%d", namespaces.Add(1))}
	api.Create(t, objects.Namespace(w.namespace, nil, nil))
	t.Cleanup(w.cleanUp)
	return w
}

// cleanUp deletes the remaining objects in the namespace, because no controller does that here.
func (w *writer) cleanUp() {
	ctx := context.WithoutCancel(w.t.Context())
	services, err := w.client.CoreV1().Services(w.namespace).List(ctx, metav1.ListOptions{})
	must.Succeed(w.t, err)
	for _, service := range services.Items {
		must.Succeed(w.t, w.client.CoreV1().Services(w.namespace).Delete(ctx, service.Name, metav1.DeleteOptions{}))
	}
	must.Succeed(w.t, w.client.DiscoveryV1().EndpointSlices(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

func (w *writer) name(name string) model.ObjectName {
	return model.ObjectName{Namespace: w.namespace, Name: name}
}

// service creates a Service with a port, modified by changes.
func (w *writer) service(name string, changes ...func(*corev1.Service)) *corev1.Service {
	w.t.Helper()
	service := objects.Service(w.namespace, name, changes...)
	api.Create(w.t, service)
	return service
}

// keyed sets a Service's topology keys.
func keyed(keys string) func(*corev1.Service) {
	return objects.Annotated(policy.TopologyKeysAnnotation, keys)
}

// proxyLabel sets the label with the name of a Service's proxy.
func proxyLabel(name string) func(*corev1.Service) {
	return objects.Labelled(policy.ServiceProxyNameLabel, name)
}

// patchService applies a JSON merge patch to a Service.
func (w *writer) patchService(name, patch string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Services(w.namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Succeed(w.t, err)
}

func (w *writer) deleteService(name string) {
	w.t.Helper()
	must.Succeed(w.t, w.client.CoreV1().Services(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// slice creates an EndpointSlice of a Service with these endpoint addresses.
func (w *writer) slice(name, service string, addresses ...string) {
	w.t.Helper()
	api.Create(w.t, objects.Slice(w.namespace, name, service, addresses...))
}

func (w *writer) patchSlice(name, patch string) {
	w.t.Helper()
	slices := w.client.DiscoveryV1().EndpointSlices(w.namespace)
	_, err := slices.Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Succeed(w.t, err)
}

func (w *writer) deleteSlice(name string) {
	w.t.Helper()
	must.Succeed(w.t, w.client.DiscoveryV1().EndpointSlices(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// node creates a Node with labels of the form "key=value". Its name begins with the namespace, so that tests do not
// interfere.
func (w *writer) node(name string, labels ...string) string {
	w.t.Helper()
	name = w.namespace + "-" + name
	node := objects.Node(name, map[string]string{})
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		node.Labels[key] = value
	}
	api.Create(w.t, node)
	w.t.Cleanup(func() {
		// The test may have deleted it.
		_ = w.client.CoreV1().Nodes().Delete(context.WithoutCancel(w.t.Context()), name, metav1.DeleteOptions{})
	})
	return name
}

func (w *writer) deleteNode(name string) {
	w.t.Helper()
	must.Succeed(w.t, w.client.CoreV1().Nodes().Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// label sets a label of a node.
func (w *writer) label(node, key, value string) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{key: value}}})
	must.Succeed(w.t, err)
	_, err = w.client.CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	must.Succeed(w.t, err)
}

// unlabel removes a label from a node.
func (w *writer) unlabel(node, key string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: null}}}`, key)
	_, err := w.client.CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Succeed(w.t, err)
}

// condition sets a condition in a node's status.
func (w *writer) condition(node, condition, status string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": %q}]}}`, condition, status)
	_, err := w.client.CoreV1().Nodes().Patch(
		w.t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must.Succeed(w.t, err)
}

// heartbeat writes a node's status, as its kubelet does periodically.
func (w *writer) heartbeat(node string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "beat %d"}]}}`, namespaces.Add(1))
	_, err := w.client.CoreV1().Nodes().Patch(
		w.t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must.Succeed(w.t, err)
}

// hasService returns a condition: a Service is active.
func hasService(name model.ObjectName) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool { return state.Service(name) != nil }
}

// hasNoService returns a condition: a Service is not active.
func hasNoService(name model.ObjectName) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool { return state.Service(name) == nil }
}

// endpointsAre returns a condition: a Service's endpoints have exactly these addresses.
func endpointsAre(service model.ObjectName, want ...string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool {
		var got []string
		for _, slice := range state.SlicesOf(service) {
			for i := range slice.Endpoints {
				got = append(got, slice.Endpoints[i].Addr.String())
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}
}

// labelsAre returns a condition: the known labels of a node are exactly these, of the form "key=value", sorted.
func labelsAre(node string, want ...string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool {
		labels, known := state.NodeLabels(node)
		var got []string
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			got = append(got, key+"="+labels[key])
		}
		return known && slices.Equal(got, want)
	}
}

// isUnknown returns a condition: a node is not known.
func isUnknown(node string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool { _, known := state.NodeLabels(node); return !known }
}

// admin returns a client configuration with cluster-admin rights that uses protobuf, like our programs.
func admin() *rest.Config {
	config := api.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return config
}

// TestAPIServerWithoutFieldSelectorsForServices simulates API servers before Kubernetes 1.31, which do
// not support field selectors for Services. Here the API server rejects a field that no API server has, with its own
// error.
func TestAPIServerWithoutFieldSelectorsForServices(t *testing.T) {
	w := newWriter(t)
	headless := func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
	w.service("before")
	w.service("headless-before", headless)
	old := traffic{field: "spec.clusterIP"}
	f := follow(t, old.record(admin()), "none", "").started()
	w.service("headless-after", headless)
	w.service("after")
	for _, name := range []string{"before", "after"} {
		f.waitUntil("the Service "+name, hasService(w.name(name)))
	}
	for _, name := range []string{"headless-before", "headless-after"} {
		if !f.holds(hasNoService(w.name(name))) {
			t.Errorf("the headless Service %s is active", name)
		}
	}
	if _, err := f.Load(t.Context(), apiserver.AllNodes); err != nil {
		t.Errorf("Load(): %v", err)
	}
	if outages := f.outagesNow(); len(outages) > 0 {
		t.Errorf("outages %v, want none", outages)
	}
}
