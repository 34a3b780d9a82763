package metadata_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/cache"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

func namespace(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	api.Create(t, objects.Namespace(name, map[string]string{policy.AdmissionLabel: "disabled"}, annotations))
}

// node creates a Node, and deletes it when the test ends.
func node(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	api.Create(t, objects.Node(name, labels))
	t.Cleanup(func() {
		if err := api.Admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func patchNode(t *testing.T, name, patch string, subresources ...string) {
	t.Helper()
	_, err := api.Admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	must.Succeed(t, err)
}

// readerConfig returns a client configuration that may list and watch Namespaces and Nodes, and nothing else.
func readerConfig(t *testing.T, user string) *rest.Config {
	t.Helper()
	return api.User(t, user, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces", "nodes"}, Verbs: []string{"list", "watch"},
	})
}

// requests records the Accept headers of requests for Namespaces and Nodes.
type requests struct {
	http.RoundTripper
	mu       sync.Mutex
	accepted []string
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	if path := request.URL.Path; strings.HasSuffix(path, "/namespaces") || strings.HasSuffix(path, "/nodes") {
		r.mu.Lock()
		r.accepted = append(r.accepted, request.Header.Get("Accept"))
		r.mu.Unlock()
	}
	return r.RoundTripper.RoundTrip(request)
}

// newCache returns a cache of the cluster's objects. It runs once start is called, until the test ends.
func newCache(t *testing.T, config *rest.Config) (c *cache.Cache, start func()) {
	t.Helper()
	objects, err := ctrlcache.New(config, ctrlcache.Options{ByObject: cache.ByObject()})
	if err != nil {
		t.Fatal(err)
	}
	c, err = cache.NewCache(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- objects.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the cache ended: %v", err)
			}
		})
	}
}

func TestNamespacesAndNodesAreWatchedByMetadataOnly(t *testing.T) {
	node(t, "followed-1", map[string]string{string(policy.Zone): "a"})
	seen := &requests{}
	config := readerConfig(t, "follower")
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		seen.RoundTripper = next
		return seen
	}
	c, start := newCache(t, config)
	if c.HasSynced() || c.Nodes() != nil || c.Namespace("default").IsLoaded {
		t.Error("the cache has objects before it was started")
	}
	start()
	wait.Until(t, "the cache is synced", c.HasSynced)
	if !c.Namespace("default").IsLoaded || c.Nodes().Zones() != 1 {
		t.Errorf("Namespace default is %v and there are %d zones, want it loaded and 1 zone", c.Namespace("default"), c.Nodes().Zones())
	}

	namespace(t, "shop", map[string]string{policy.DefaultTopologyModeAnnotation: "Auto", "example.com/other": "x"})
	wait.Until(t, "a new Namespace is cached", func() bool { return c.Namespace("shop").IsLoaded })
	got := c.Namespace("shop")
	if len(got.Annotations) != 1 || got.Annotations[policy.DefaultTopologyModeAnnotation] != "Auto" ||
		got.Labels[policy.AdmissionLabel] != "disabled" {
		t.Errorf("the cached Namespace is %v, want the label and the annotation that are in use", got)
	}

	node(t, "followed-2", map[string]string{string(policy.Zone): "b", "example.com/rack": "r1"})
	wait.Until(t, "a second zone is cached", func() bool { return c.Nodes().Zones() == 2 && c.Nodes().HasKey("example.com/rack") })
	patchNode(t, "followed-2", `{"metadata": {"labels": {"topology.kubernetes.io/zone": "a", "example.com/rack": null}}}`)
	wait.Until(t, "the second zone is gone again", func() bool { return c.Nodes().Zones() == 1 && !c.Nodes().HasKey("example.com/rack") })

	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.accepted) == 0 {
		t.Error("no request was seen")
	}
	for _, accepted := range seen.accepted {
		if first, _, _ := strings.Cut(accepted, ","); !strings.Contains(first, "as=PartialObjectMetadata") {
			t.Errorf("a request accepts %q, want metadata only", accepted)
		}
	}
}

func TestHeartbeatsDoNotCreateNewValues(t *testing.T) {
	node(t, "beating", map[string]string{string(policy.Zone): "a"})
	c, start := newCache(t, readerConfig(t, "heartbeats"))
	start()
	wait.Until(t, "the cache is synced", c.HasSynced)
	before := c.Nodes()
	distinct, stop := watchNodes(c)
	for beat := range 20 {
		patchNode(t, "beating", fmt.Sprintf(`{"status": {"nodeInfo": {"bootID": "%d"}}}`, beat), "status")
	}
	// When the last change has arrived, all previous changes have been received.
	patchNode(t, "beating", `{"metadata": {"labels": {"example.com/last": "x"}}}`)
	wait.Until(t, "the label is cached", func() bool { return c.Nodes().HasKey("example.com/last") })
	stop()
	if got := <-distinct; got > 2 {
		t.Errorf("%d different values were returned, want at most 2: before and after the label", got)
	}
	if before.HasKey("example.com/last") {
		t.Error("a value that was returned before has changed")
	}
}

// watchNodes counts the different values that the cache returns, until stop is called.
func watchNodes(c *cache.Cache) (different <-chan int, stop func()) {
	done, counted := make(chan struct{}), make(chan int, 1)
	go func() {
		seen := map[*rules.NodeLabels]bool{}
		for {
			select {
			case <-done:
				counted <- len(seen)
				return
			case <-time.After(100 * time.Microsecond):
				seen[c.Nodes()] = true
			}
		}
	}()
	return counted, func() { close(done) }
}

func TestANamespaceIsCachedAtOnce(t *testing.T) {
	c, start := newCache(t, readerConfig(t, "asker"))
	start()
	wait.Until(t, "the cache is synced", c.HasSynced)
	const all = 20
	cached := 0
	for i := range all {
		name := fmt.Sprintf("new-%d", i)
		namespace(t, name, nil)
		if c.Namespace(name).IsLoaded {
			cached++
		}
		wait.Until(t, "a new Namespace is cached", func() bool { return c.Namespace(name).IsLoaded })
	}
	// On an overloaded machine an event may take longer than the test waits for it.
	if cached < all/2 {
		t.Errorf("%d of %d new Namespaces were cached at once", cached, all)
	}
}

func TestTheCacheIsKeptWhileTheAPIServerIsDown(t *testing.T) {
	namespace(t, "lasting", map[string]string{policy.DefaultTopologyKeysAnnotation: "*"})
	node(t, "lasting", map[string]string{string(policy.Zone): "a"})
	c, start := newCache(t, readerConfig(t, "patient"))
	start()
	wait.Until(t, "the cache is synced", c.HasSynced)
	api.KillAPIServer()
	if !c.HasSynced() || !c.Namespace("lasting").IsLoaded || c.Nodes().Zones() != 1 {
		t.Errorf("without API server: synced %v, Namespace %v, %d zones", c.HasSynced(), c.Namespace("lasting"), c.Nodes().Zones())
	}
	must.Succeed(t, api.StartAPIServer(t.Context()))
	patchNode(t, "lasting", `{"metadata": {"labels": {"example.com/after": "x"}}}`)
	wait.Until(t, "changes are cached again", func() bool { return c.Nodes().HasKey("example.com/after") })
}
