package manifests_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// requests collects what is asked of the API server, in RBAC's words, and what was forbidden.
type requests struct {
	mutex     sync.Mutex
	asked     map[string]bool
	forbidden []string
}

// transport is one client's way to the API server.
type transport struct {
	*requests
	next http.RoundTripper
}

func (r transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	permission := permissionOf(request)
	r.asked[permission] = true
	if err == nil && response.StatusCode == http.StatusForbidden {
		r.forbidden = append(r.forbidden, permission)
	}
	return response, err
}

func (r *requests) all() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Sorted(maps.Keys(r.asked))
}

// permissionOf returns what RBAC is asked for a request to a whole resource: "watch /services". Anything else is returned as it is,
// and belongs to no role of ours.
func permissionOf(request *http.Request) string {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	group := ""
	switch {
	case path[0] == "apis" && len(path) > 2:
		group, path = path[1], path[3:]
	case path[0] == "api" && len(path) > 1:
		path = path[2:]
	}
	if len(path) == 3 && path[0] == "namespaces" {
		path = path[2:]
	}
	verb := map[string]string{http.MethodGet: "list", http.MethodPost: "create"}[request.Method]
	if request.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	if len(path) != 1 || verb == "" {
		return request.Method + " " + request.URL.Path
	}
	return verb + " " + group + "/" + path[0]
}

// testRequests lets the parts of the proxy that speak with the API server do all they can, as the manifests' ServiceAccount. They must
// use every permission of the role, and need no other.
func testRequests(t *testing.T, plane *controlplane.ControlPlane) {
	createRackService(t, plane)
	config, err := plane.ServiceAccountConfig(t.Context(), "kube-system", "vicinity-proxy")
	if err != nil {
		t.Fatal(err)
	}
	seen := &requests{asked: map[string]bool{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{seen, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	followed, err := cluster.New(config, cluster.Options{View: convert.View{Node: "node-1"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	// Run watches, and lists only at an API server that cannot begin a watch with what there is. Load lists.
	if _, err := followed.Load(t.Context(), cluster.AllNodes); err != nil {
		t.Errorf("reading the cluster once: %v", err)
	}
	recorder := events.New(client.EventsV1(), "node-1", log)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := followed.Run(ctx, func(convert.Update) {}); err != nil && ctx.Err() == nil {
			t.Errorf("following the cluster: %v", err)
		}
	})
	running.Go(func() {
		if err := recorder.Run(ctx); err != nil {
			t.Errorf("creating Events: %v", err)
		}
	})
	recorder.Report(events.Started("node-1", "v1"))
	isAll := func() bool { return cmp.Equal(allowed, seen.all()) }
	for deadline := time.Now().Add(time.Minute); !isAll() && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	cancel()
	running.Wait()
	if diff := cmp.Diff(allowed, seen.all()); diff != "" {
		t.Errorf("permissions in use (-granted +asked for):\n%s", diff)
	}
	if len(seen.forbidden) > 0 || recorder.Dropped() > 0 {
		t.Errorf("forbidden: %q, and %d events were dropped", seen.forbidden, recorder.Dropped())
	}
}

// createRackService creates a Service whose topology key is answered by the labels of other nodes alone.
func createRackService(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"vicinity.dev/topology-keys": "example.com/rack, *"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := admin.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
