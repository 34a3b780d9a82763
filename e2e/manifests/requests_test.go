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

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// requests collects the requests to the API server, as RBAC permissions, and those that were forbidden.
type requests struct {
	mutex     sync.Mutex
	requested map[string]bool
	forbidden []string
}

// transport is the transport of one client.
type transport struct {
	*requests
	next http.RoundTripper
}

func (r transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	permission := permissionOf(request)
	r.requested[permission] = true
	if err == nil && response.StatusCode == http.StatusForbidden {
		r.forbidden = append(r.forbidden, permission)
	}
	return response, err
}

func (r *requests) all() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Sorted(maps.Keys(r.requested))
}

// permissionOf returns the permission that RBAC checks for a request to a whole resource: "watch /services". Any other
// request is returned as it is; none of our roles allows it.
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

// testRequests makes the proxy's clients of the API server do everything they can, as the manifests' ServiceAccount.
// They must use every permission of the role, and need no other.
func testRequests(t *testing.T, api *site.Site) {
	// Its topology key needs the labels of other nodes.
	api.Create(t, objects.Service("default", "web", objects.Annotated(policy.TopologyKeysAnnotation, "example.com/rack, *")))
	config := api.Account(t, "kube-system", "vicinity-proxy")
	seen := &requests{requested: map[string]bool{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{seen, next} })
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	source, err := apiserver.New(config, apiserver.Options{View: convert.View{Node: "node-1"}, Log: log})
	must.Succeed(t, err)
	// Run watches. It lists only if the API server cannot start a watch with the existing objects. Load lists.
	if _, err := source.Load(t.Context(), apiserver.AllNodes); err != nil {
		t.Errorf("list the cluster's objects: %v", err)
	}
	recorder := events.New(client.EventsV1(), "node-1", log)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := source.Run(ctx, func(convert.Update) {}); err != nil && ctx.Err() == nil {
			t.Errorf("watch the cluster: %v", err)
		}
	})
	running.Go(func() {
		if err := recorder.Run(ctx); err != nil {
			t.Errorf("create Events: %v", err)
		}
	})
	recorder.Report(events.Started("node-1", "v1"))
	defer running.Wait()
	defer cancel()
	wait.Equal(t, "all permissions are in use", allowed, seen.all)
	cancel()
	running.Wait()
	// All requests until the end.
	if diff := cmp.Diff(allowed, seen.all()); diff != "" {
		t.Errorf("permissions in use (-granted +used):\n%s", diff)
	}
	if len(seen.forbidden) > 0 || recorder.Dropped() > 0 {
		t.Errorf("forbidden: %q, and %d events were dropped", seen.forbidden, recorder.Dropped())
	}
}
