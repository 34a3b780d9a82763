package metadata_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// longest is how long something may take that happens at once on an idle machine.
const longest = 90 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(longest); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass that %s", what)
		}
	}
}

// writer changes the cluster.
type writer struct {
	t      *testing.T
	client *kubernetes.Clientset
}

func newWriter(t *testing.T) writer {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return writer{t, client}
}

func (w writer) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w writer) namespace(name string, annotations map[string]string) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{policy.AdmissionLabel: "disabled"}}
	_, err := w.client.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	w.must(err)
}

// node makes a Node, and removes it when the test ends.
func (w writer) node(name string, labels map[string]string) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: name, Labels: labels}
	_, err := w.client.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: meta}, metav1.CreateOptions{})
	w.must(err)
	w.t.Cleanup(func() {
		err := w.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil {
			w.t.Error(err)
		}
	})
}

func (w writer) patchNode(name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Nodes().Patch(
		w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	w.must(err)
}

// reader returns a client configuration that may list and watch Namespaces and Nodes, and nothing else.
func (w writer) reader(user string) *rest.Config {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: user}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces", "nodes"}, Verbs: []string{"list", "watch"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	_, err := w.client.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	w.must(err)
	config, err := api.ClientConfig(user)
	w.must(err)
	return config
}

// requests are those for Namespaces and Nodes: what they accept as an answer.
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

// follow follows the cluster. The cache runs once start is called, until the test ends.
func follow(t *testing.T, config *rest.Config) (c *cluster.Cluster, start func()) {
	t.Helper()
	objects, err := cache.New(config, cache.Options{ByObject: cluster.ByObject()})
	if err != nil {
		t.Fatal(err)
	}
	c, err = cluster.Follow(t.Context(), objects)
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

func TestNamespacesAndNodesAreFollowedByTheirMetadataAlone(t *testing.T) {
	w := newWriter(t)
	w.node("followed-1", map[string]string{string(policy.Zone): "a"})
	seen := &requests{}
	config := w.reader("follower")
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		seen.RoundTripper = next
		return seen
	}
	c, start := follow(t, config)
	if c.HasSynced() || c.Nodes() != nil || c.Namespace("default").Known {
		t.Error("something is known before anybody was asked")
	}
	start()
	eventually(t, "everything is known", c.HasSynced)
	if !c.Namespace("default").Known || c.Nodes().Zones() != 1 {
		t.Errorf("default %v, %d zones", c.Namespace("default"), c.Nodes().Zones())
	}

	w.namespace("shop", map[string]string{policy.DefaultTopologyModeAnnotation: "Auto", "example.com/other": "x"})
	eventually(t, "a new Namespace is known", func() bool { return c.Namespace("shop").Known })
	got := c.Namespace("shop")
	if len(got.Annotations) != 1 || got.Annotations[policy.DefaultTopologyModeAnnotation] != "Auto" ||
		got.Labels[policy.AdmissionLabel] != "disabled" {
		t.Errorf("of the Namespace is known: %v", got)
	}

	w.node("followed-2", map[string]string{string(policy.Zone): "b", "example.com/rack": "r1"})
	eventually(t, "a second zone is known", func() bool { return c.Nodes().Zones() == 2 && c.Nodes().Carries("example.com/rack") })
	w.patchNode("followed-2", `{"metadata": {"labels": {"topology.kubernetes.io/zone": "a", "example.com/rack": null}}}`)
	eventually(t, "it is gone again", func() bool { return c.Nodes().Zones() == 1 && !c.Nodes().Carries("example.com/rack") })

	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.accepted) == 0 {
		t.Error("no request was seen")
	}
	for _, accepted := range seen.accepted {
		if first, _, _ := strings.Cut(accepted, ","); !strings.Contains(first, "as=PartialObjectMetadata") {
			t.Errorf("a request accepts %q, and not metadata alone", accepted)
		}
	}
}

func TestHeartbeatsMakeNothingNew(t *testing.T) {
	w := newWriter(t)
	w.node("beating", map[string]string{string(policy.Zone): "a"})
	c, start := follow(t, w.reader("heartbeats"))
	start()
	eventually(t, "everything is known", c.HasSynced)
	before := c.Nodes()
	handedOut, stop := watchNodes(c)
	for beat := range 20 {
		w.patchNode("beating", fmt.Sprintf(`{"status": {"nodeInfo": {"bootID": "%d"}}}`, beat), "status")
	}
	// What comes last shows that everything before it has been seen.
	w.patchNode("beating", `{"metadata": {"labels": {"example.com/last": "x"}}}`)
	eventually(t, "the label is known", func() bool { return c.Nodes().Carries("example.com/last") })
	stop()
	if got := <-handedOut; got > 2 {
		t.Errorf("%d different values were handed out, want those before and after the label", got)
	}
	if before.Carries("example.com/last") {
		t.Error("what was handed out before has changed")
	}
}

// watchNodes counts the different values that are handed out, until stop is called.
func watchNodes(c *cluster.Cluster) (different <-chan int, stop func()) {
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

func TestANamespaceIsKnownToWhoAsksAtOnce(t *testing.T) {
	w := newWriter(t)
	c, start := follow(t, w.reader("asker"))
	start()
	eventually(t, "everything is known", c.HasSynced)
	const all = 20
	atOnce := 0
	for i := range all {
		name := fmt.Sprintf("new-%d", i)
		w.namespace(name, nil)
		if c.Namespace(name).Known {
			atOnce++
		}
		eventually(t, "a new Namespace is known", func() bool { return c.Namespace(name).Known })
	}
	// On a machine that has too much to do an event may take longer than anybody waits for it.
	if atOnce < all/2 {
		t.Errorf("%d of %d new Namespaces were known to who asked at once", atOnce, all)
	}
}

func TestWhatWasKnownStaysInForceWhileTheAPIServerIsAway(t *testing.T) {
	w := newWriter(t)
	w.namespace("lasting", map[string]string{policy.DefaultTopologyKeysAnnotation: "*"})
	w.node("lasting", map[string]string{string(policy.Zone): "a"})
	c, start := follow(t, w.reader("patient"))
	start()
	eventually(t, "everything is known", c.HasSynced)
	api.KillAPIServer()
	if !c.HasSynced() || !c.Namespace("lasting").Known || c.Nodes().Zones() != 1 {
		t.Errorf("without API server: synced %v, Namespace %v, %d zones", c.HasSynced(), c.Namespace("lasting"), c.Nodes().Zones())
	}
	w.must(api.StartAPIServer(t.Context()))
	w.patchNode("lasting", `{"metadata": {"labels": {"example.com/after": "x"}}}`)
	eventually(t, "changes are known again", func() bool { return c.Nodes().Carries("example.com/after") })
}
