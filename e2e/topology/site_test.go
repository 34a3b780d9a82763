// Package topology_test publishes the topology of nodes and reads it, through a real API server and with the rights in
// the manifests.
package topology_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/sent"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/topologypublisher"
)

var api *site.Site

func TestMain(m *testing.M) { site.Main(m, &api) }

const (
	namespace = "vicinity-system"
	rack      = "example.com/rack"
)

// install applies the component, and returns the configuration of the publisher.
func install(t testing.TB) *rest.Config {
	t.Helper()
	apply(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must.Succeed(t, api.Admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		_, err := api.Shell(ctx, `
			kubectl delete topologyslices --all
			kubectl delete services --selector component!=apiserver
			kubectl delete leases --all --namespace vicinity-system`)
		must.Succeed(t, err)
	})
	return withProtobuf(api.Account(t, namespace, "vicinity-webhook"))
}

// adminConfig returns a configuration with cluster-admin rights that encodes objects like our programs.
func adminConfig() *rest.Config { return withProtobuf(rest.CopyConfig(api.AdminConfig())) }

// withProtobuf sets the encoding that our programs use (pkg/kube).
func withProtobuf(config *rest.Config) *rest.Config {
	const protobuf = "application/vnd.kubernetes.protobuf"
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	return config
}

// apply applies the component's manifests.
func apply(t testing.TB) {
	t.Helper()
	_, err := api.Shell(context.WithoutCancel(t.Context()), `
		kubectl apply -f manifests/webhook/base/access.yaml
		kubectl apply -f manifests/webhook/components/topology-slices/topologyslices.yaml \
			-f manifests/webhook/components/topology-slices/access.yaml
		kubectl wait --for condition=Established customresourcedefinition topologyslices.vicinity.dev`)
	must.Succeed(t, err)
}

// publisher is a running publisher.
type publisher struct {
	end      func()
	observer *counts
	writes   *sent.Writes
	log      *logs.Log
}

// counts is a publisher's observer that counts.
type counts struct {
	mutex                  sync.Mutex
	written                map[string]int
	slices, nodes, skipped int
	failures               int
}

func (c *counts) Published(_ time.Time, slices, nodes, skipped int, _ time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.slices, c.nodes, c.skipped = slices, nodes, skipped
}

func (c *counts) LeadEnded() {}

func (c *counts) SliceWritten(operation string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.written[operation]++
}

func (c *counts) PublishFailed() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.failures++
}

// failed returns the number of failed rounds.
func (c *counts) failed() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.failures
}

// writtenText returns the writes that the observer was notified of.
func (c *counts) writtenText() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return fmt.Sprint(c.written)
}

func startPublisher(t testing.TB, config *rest.Config, identity string) publisher {
	t.Helper()
	observer, writes, log := &counts{written: map[string]int{}}, sent.NewCounter("topologyslices"), logs.New(t, identity)
	options := topologypublisher.Options{
		Namespace: namespace, Identity: identity, DefaultKeys: func() string { return "" },
		Log: slog.New(slog.NewTextHandler(log, nil)), Observer: observer,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- topologypublisher.Run(ctx, writes.Wrap(config), options) }()
	end := sync.OnceFunc(func() {
		cancel()
		must.Succeed(t, <-ended)
	})
	t.Cleanup(end)
	return publisher{end, observer, writes, log}
}

func nodeOf(name, zone string, labels map[string]string) *corev1.Node {
	all := map[string]string{corev1.LabelTopologyZone: zone, "beta.kubernetes.io/arch": "amd64"}
	maps.Copy(all, labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}
}

// createNodes creates Nodes, and returns what should be published for them.
func createNodes(t testing.TB, from, to int) map[string]string {
	t.Helper()
	config := rest.CopyConfig(api.AdminConfig())
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	want := map[string]string{}
	for i := from; i < to; i++ {
		zone := "zone-" + string(rune('a'+i%3))
		node := nodeOf(fmt.Sprintf("node-%04d", i), zone, map[string]string{rack: fmt.Sprint("rack-", i/10)})
		_, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		must.Succeed(t, err)
		want[node.Name] = corev1.LabelTopologyZone + "=" + zone
	}
	return want
}

// published returns the labels of each node in the slices, and the version of each slice.
func published(t testing.TB) (nodes, versions map[string]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	reader, err := client.New(api.AdminConfig(), client.Options{Scheme: scheme})
	must.Succeed(t, err)
	var all v1alpha1.TopologySliceList
	must.Succeed(t, reader.List(t.Context(), &all))
	nodes, versions = map[string]string{}, map[string]string{}
	for _, slice := range all.Items {
		versions[slice.Name] = slice.ResourceVersion
		for _, node := range slice.Nodes {
			var labels []string
			for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
				labels = append(labels, key+"="+node.Labels[key])
			}
			if nodes[node.Name] != "" {
				t.Errorf("node %s is in two slices", node.Name)
			}
			nodes[node.Name] = strings.Join(labels, " ")
		}
	}
	return nodes, versions
}

// waitForNodes waits until exactly these nodes are published.
func waitForNodes(t testing.TB, what string, want map[string]string) {
	t.Helper()
	wait.Equal(t, what, fmt.Sprint(want), func() string {
		nodes, _ := published(t)
		return fmt.Sprint(nodes)
	})
}
